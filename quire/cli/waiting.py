"""Waits for jobs to finish, with a progress bar on a terminal."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from quire import format
from quire.cli import console
from quire.errors import NotFound

if TYPE_CHECKING:
    from quire.cli.session import Backend

POLL_SECONDS = 0.1
#: Jobs per poll; the rest are polled when these have finished.
PAGE = 200
#: Seconds without a worker after which that is reported, once.
SILENCE_SECONDS = 3.0

Tell = Callable[[int, dict[str, Any] | None], None]


def until_over(
    backend: "Backend", job_ids: Sequence[int], *, quiet: bool = False
) -> dict[str, int]:
    """Wait until every job has finished; return the number of jobs by state."""
    left, ended = list(job_ids), dict[str, int]()
    hint_at = time.monotonic() + SILENCE_SECONDS
    with _bar(len(left), quiet) as tell:
        while True:
            page = [_job(backend, job_id) for job_id in left[:PAGE]]
            over = {job["id"] for job in page if is_over(job)}
            for job in page:
                if job["id"] in over:
                    state = format.job_state(job)
                    ended[state] = ended.get(state, 0) + 1
            left = [job_id for job_id in left if job_id not in over]
            tell(len(job_ids) - len(left), page[0] if page else None)
            if not left:
                return ended
            if hint_at and time.monotonic() > hint_at:
                hint_at = 0.0
                if not backend.any_worker():
                    console.note(
                        "No worker is running. Start one in another terminal with `quire up`."
                    )
            if not over:
                time.sleep(POLL_SECONDS)


def is_over(job: dict[str, Any]) -> bool:
    """Tell whether a job has finished."""
    return job["finished_at"] is not None


def exit_code(ended: dict[str, int]) -> int:
    """Return 0 if every job completed, else 1."""
    return 0 if set(ended) <= {"completed"} else 1


def outcome(ended: dict[str, int]) -> str:
    """Write how jobs finished: `3 completed, 1 failed`."""
    return ", ".join(f"{number:,} {state}" for state, number in sorted(ended.items()))


def _job(backend: "Backend", job_id: int) -> dict[str, Any]:
    try:
        return backend.job(job_id)
    except NotFound as error:
        raise NotFound(f"job {job_id}: it was deleted while this command waited for it.") from error


@contextlib.contextmanager
def _bar(total: int, quiet: bool) -> Iterator[Tell]:
    if quiet or not sys.stderr.isatty():
        yield lambda done, job: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        drawn = progress.add_task("", total=1.0)

        def tell(done: int, job: dict[str, Any] | None) -> None:
            if total == 1 and job is not None:
                text = format.next_attempt(job, time.time())
                text = text or format.one_line(job["progress_message"], 60)
                text = f"job {job['id']} {job['state']}  {text}"
                progress.update(drawn, completed=job["progress"], description=text)
            else:
                text = f"{done:,} of {total:,} jobs"
                progress.update(drawn, completed=done / total, description=text)

        yield tell
