"""The live view of an ingest job: a bar for all files, a line for each file in progress."""

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from quire import format
from quire.app import App
from quire.cli import console
from quire.control import queries
from quire.errors import NotFound

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Seconds between polls; longer if a poll itself takes long.
LOOK_SECONDS = 0.2
#: Seconds between lines when the output is not a terminal.
LINE_SECONDS = 2.0
#: Seconds over which pages per second are averaged.
RATE_SECONDS = 10.0
BAR = 20


class Picture(NamedTuple):
    """The progress of a job at one moment."""

    job: dict[str, Any]
    at_work: list[dict[str, Any]]
    pages: int  # committed


def follow(
    app: App, job_id: int, check: Callable[[], None], *, quiet: bool = False
) -> dict[str, Any]:
    """Draw a job until it finishes, and return it. `check` may raise to end the wait."""
    rate = Rate()
    with _drawn(quiet) as draw:
        while True:
            began = time.monotonic()
            seen = look(app, job_id)
            draw(seen, rate.tell(seen.pages, began))
            if seen.job["finished_at"] is not None:
                return seen.job
            check()
            # Polling a job of a hundred thousand files must not use all of the machine.
            time.sleep(max(LOOK_SECONDS, 4 * (time.monotonic() - began)))


def look(app: App, job_id: int) -> Picture:
    """Read the progress of a job."""
    job = queries.find_job(app.caller, job_id)
    if job is None:
        raise NotFound(f"job {job_id}: it was deleted while this command waited for it.")
    return Picture(job, *queries.files_in_progress(app.caller, job_id))


class Rate:
    """Pages per second, averaged over the last seconds."""

    def __init__(self) -> None:
        self._told: deque[tuple[float, int]] = deque()

    def tell(self, pages: int, at: float) -> float | None:
        """Add a count; return the rate, once there is an earlier count to compare with."""
        self._told.append((at, pages))
        while at - self._told[0][0] > RATE_SECONDS and len(self._told) > 2:
            self._told.popleft()
        since, before = self._told[0]
        return (pages - before) / (at - since) if at - since > 1 and pages > before else None


def summary_line(seen: Picture, rate: float | None) -> str:
    """Write the progress of a job on one line."""
    job = seen.job
    parts = [format.job_files(job) if job["files"] else _before_files(job)]
    if rate:
        parts.append(f"{rate:,.0f} pages/s" if rate >= 10 else f"{rate:.1f} pages/s")
    if waits := format.next_attempt(job, time.time()):
        parts.append(waits)
    left = (format.epoch(job["eta_at"]) or 0.0) - time.time()
    if job["eta_at"] and left > 1 and not job["is_listing"]:
        parts.append(f"{format.rough_span(left)} left")
    return ", ".join(parts)


def _before_files(job: dict[str, Any]) -> str:
    if job["state"] == "pending":
        return "waiting for a worker"
    return format.one_line(job["progress_message"], 60) or "listing"


def work_line(each: dict[str, Any]) -> str:
    """Write the progress of one file."""
    if each["of"] > 1:
        return f"{each['pages']:,} of {each['of']:,} pages"
    said = format.one_line(each["message"], 40)
    if each["progress"] >= 1 and said.startswith("fetched"):
        return "reading"
    return said or "starting"


@contextlib.contextmanager
def _drawn(quiet: bool) -> Iterator[Callable[[Picture, float | None], None]]:
    if quiet:
        yield lambda seen, rate: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
            yield lambda seen, rate: live.update(picture(seen, rate), refresh=True)
    else:
        yield _lines()


def _lines() -> Callable[[Picture, float | None], None]:
    """Print a line when something has changed, but not too often."""
    last, due = "", 0.0

    def tell(seen: Picture, rate: float | None) -> None:
        nonlocal last, due
        line = format.job_files(seen.job) if seen.job["files"] else _before_files(seen.job)
        line += str(seen.job["next_attempt_at"])
        if line == last or (time.monotonic() < due and seen.job["finished_at"] is None):
            return
        console.note(summary_line(seen, rate))
        last, due = line, time.monotonic() + LINE_SECONDS

    return tell


def picture(seen: Picture, rate: float | None) -> "RenderableType":
    """Draw the bar and the files in progress."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    job = seen.job
    is_known = bool(job["files"]) and not job["is_listing"]
    bar = ProgressBar(
        total=1.0, completed=job["progress"] if is_known else 0.0, width=BAR, pulse=not is_known
    )
    head = Table.grid(padding=(0, 1))
    share = f"{int(job['progress'] * 100)} %" if is_known else ""
    told = Text(summary_line(seen, rate), no_wrap=True, overflow="ellipsis")
    head.add_row(bar, Text(share), told)
    lines = Table.grid(padding=(0, 2))
    for each in seen.at_work:
        lines.add_row(Text(f"  {format.one_line(each['name'], 48)}"), Text(work_line(each)))
    return Group(head, lines)
