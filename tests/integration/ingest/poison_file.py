"""Stands for libraries that break on a page: what some words on it do to the process.

Loaded into the children of a worker only. A file in the home gives the job kinds other limits.
"""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quire.ingest import kinds
from quire.model.contracts import MARK
from quire.parse import formats, render

_read, _thumbnail = formats.read, render.thumbnail

_limits = Path(os.environ["QUIRE_HOME"], "limits.json")
for _handler in (kinds.document, kinds.pages, kinds.swap):
    _given = json.loads(_limits.read_text()) if _limits.exists() else {}
    for _name, _value in {"backoff": 0.05, **_given}.items():
        object.__setattr__(getattr(_handler, MARK), _name, _value)


def _suffer(text: str) -> None:
    if "ABORT" in text:
        os.abort()
    if "HANG" in text:
        threading.Event().wait()
    if "HUNGRY" in text:
        eaten = []
        while True:
            eaten.append(b"x" * (50 << 20))
            threading.Event().wait(0.02)


def read(*arguments: Any, **more: Any) -> Iterator[Any]:
    for page in _read(*arguments, **more):
        _suffer(getattr(page, "text", ""))
        yield page


def draw(path: Path, media_type: str) -> bytes | None:
    if b"UNDRAWABLE" in path.read_bytes():
        os.abort()
    return _thumbnail(path, media_type)


formats.read = read
render.thumbnail = draw
