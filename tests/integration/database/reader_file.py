"""A parser that waits for a file of the home, for tests that do harm while a document is read."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from quire import Page, parser

HOME = Path(os.environ.get("QUIRE_HOME", "."))


@parser("text/x-gated", name="gated", suffixes=(".gated",))
def gated(path: Path) -> Iterator[Page]:
    """Say that it began, wait, and read one page."""
    with (HOME / "trace.txt").open("a") as trace:
        trace.write("reading\n")
    while not (HOME / "gate").exists():
        threading.Event().wait(0.01)
    yield Page(1, path.read_text())
