"""`quire bench api`: measures lists, pages, streams and uploads through a real server."""

import sys
from collections.abc import Sequence

from benchmarks.api import lists, pages, streams, upload
from benchmarks.api.sizes import FULL, QUICK
from benchmarks.queue import command

MEASURES: dict[str, command.Measure] = {
    "lists": lists.measure,
    "pages": pages.measure,
    "latency": streams.latency,
    "streams": streams.cost,
    "upload": upload.measure,
}
_CLOSING = "Requests go over loopback, one at a time; authentication is off."


def main(
    *,
    database: str | None = None,
    quick: bool = False,
    only: Sequence[str] | None = None,
    json: str | None = None,
) -> int:
    """Measure, print a table, write JSON where asked; returns the exit code."""
    chosen = command.named(only, MEASURES)
    report = command.run(
        database or "embedded", chosen, QUICK if quick else FULL,
        is_quick=quick, measures=MEASURES, closing=_CLOSING,
    )  # fmt: skip
    if json != "-":
        sys.stdout.write(command.as_text(report) + "\n")
    if json is not None:
        command.write_json(report, json)
    return 1 if report["failures"] else 0
