"""`python -m benchmarks api`: which measurements of the API and the dashboard there are."""

from collections.abc import Sequence

from benchmarks import runner
from benchmarks.api import lists, streams, upload
from benchmarks.api.sizes import FULL, QUICK

MEASURES: dict[str, runner.Measure] = {
    "lists": lists.lists,
    "pages": lists.pages,
    "latency": streams.latency,
    "streams": streams.cost,
    "upload": upload.measure,
}
NOTE = "Requests go over loopback, one at a time; authentication is off."


def main(
    *,
    database: str | None = None,
    quick: bool = False,
    only: Sequence[str] | None = None,
    json: str | None = None,
) -> int:
    """Run the chosen measurements and report them; returns the exit code."""
    names = runner.selected(only, MEASURES)
    sizes = QUICK if quick else FULL
    report = runner.run(
        database or "embedded", names, sizes, is_quick=quick, measures=MEASURES, note=NOTE
    )
    return runner.publish(report, json)
