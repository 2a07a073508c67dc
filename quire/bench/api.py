"""`quire bench api`: measures lists, pages, streams and uploads through a real server."""

import sys
from collections.abc import Sequence

from quire.bench import api_lists, api_pages, api_streams, api_upload, queue
from quire.bench.api_sizes import FULL, QUICK

MEASURES: dict[str, queue.Measure] = {
    "lists": api_lists.measure,
    "pages": api_pages.measure,
    "latency": api_streams.latency,
    "streams": api_streams.cost,
    "upload": api_upload.measure,
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
    chosen = queue.named(only, MEASURES)
    report = queue.run(
        database or "embedded", chosen, QUICK if quick else FULL,
        is_quick=quick, measures=MEASURES, closing=_CLOSING,
    )  # fmt: skip
    if json != "-":
        sys.stdout.write(queue.as_text(report) + "\n")
    if json is not None:
        queue.write_json(report, json)
    return 1 if report["failures"] else 0
