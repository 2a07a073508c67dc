"""`quire demo`: kills a worker in the middle of 200 jobs and counts what happened.

The jobs are submitted with a fixed key, so a second run finds those of the first.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.cli import console, opening, words
from quire.cli.demo_jobs import TABLE
from quire.errors import WorkerStartFailed

if TYPE_CHECKING:
    from quire.app import App

JOBS = 200
KEY = "quire-demo"
PLUGIN = "quire.cli.demo_jobs"
#: The worker is killed when this many are done.
KILL_AT = int(JOBS * 0.4)
#: Seconds without any job ending after which the demonstration gives up.
PATIENCE = 60.0
POLL_SECONDS = 0.05


class Tally(NamedTuple):
    """How far the jobs are."""

    completed: int
    over: int


def run() -> int:
    """Tell the story; returns the exit code."""
    home = Path(os.environ.get("QUIRE_HOME") or ".quire").absolute()
    is_fresh = not home.exists()
    with opening.writing([PLUGIN], home=home) as app:
        console.say(f"home      {home}{' (made just now)' if is_fresh else ''}")
        _make_table(app)
        ids, is_reused = _submitted(app)
        tally = _tally(app, ids)
        if is_reused:
            console.say(f"submit    all {JOBS} jobs were reused: the same key makes them only once")
        else:
            console.say(f"submit    {JOBS} jobs, each writes one row; ids {ids[0]} to {ids[-1]}")
        if tally.over < JOBS:
            _work(app, ids)
        else:
            console.say("work      none is left from the first run: nothing is done twice")
        return _conclude(app, ids)


def _make_table(app: "App") -> None:
    # No unique key: a row that was written twice has to show.
    with app.db.begin() as conn:
        conn.exec_driver_sql(
            f"CREATE TABLE IF NOT EXISTS {TABLE} (job_id BIGINT NOT NULL, entry BIGINT NOT NULL)"
        )


def _submitted(app: "App") -> tuple[list[int], bool]:
    """Submit the jobs, or find them; where some were deleted since, make a fresh set."""
    from quire.model.records import Submission
    from quire.store import owners, reports

    wishes = [Submission("ledger", {"entry": number}) for number in range(JOBS)]
    with app.db.read() as conn:
        last = reports.last_job_id(conn)
    ids = app.submit_many(wishes, key=KEY)
    with app.db.read() as conn:
        there = owners.jobs_of_tenant(conn, app.settings.tenant, ids)
    if len(there) == JOBS:
        return ids, ids[0] <= last
    return app.submit_many(wishes, key=f"{KEY}-after-{last}"), False


def _tally(app: "App", ids: Sequence[int]) -> Tally:
    from quire.store import reports

    def number(*states: str) -> int:
        with app.db.read() as conn:
            found = reports.ids_of_jobs(
                conn,
                app.settings.tenant,
                after_id=ids[0] - 1,
                limit=10 * JOBS,
                kind="ledger",
                states=states,
            )
        return len(set(found) & set(ids))

    completed = number("completed")
    return Tally(completed, completed + number("failed", "stopped", "cancelled"))


def _work(app: "App", ids: Sequence[int]) -> None:
    """Run a worker, kill it in the middle, and let a second one do the rest."""
    began = time.monotonic()
    with _worker(app) as first:
        console.say(f"worker    started (pid {first.pid})")
        before = _tally(app, ids).over
        with _bar(before) as draw:
            tally = _until(app, ids, lambda t: t.over >= max(KILL_AT, before + 1), draw, first)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        console.say(f"kill -9   of the worker, with {tally.completed} jobs done and others running")
    with _worker(app) as second:
        console.say(f"worker    started again (pid {second.pid})")
        with _bar(tally.over) as draw:
            _until(app, ids, lambda t: t.over >= JOBS, draw, second)
    console.say(f"done      {words.span(time.monotonic() - began)} after the first start")


def _until(
    app: "App",
    ids: Sequence[int],
    is_enough: Callable[[Tally], bool],
    draw: Callable[[int], None],
    worker: "subprocess.Popen[bytes]",
) -> Tally:
    """Wait until enough jobs are over; fail where nothing moves any more."""
    tally, moved_at = _tally(app, ids), time.monotonic()
    while not is_enough(tally):
        if worker.poll() is not None or time.monotonic() - moved_at > PATIENCE:
            raise WorkerStartFailed(
                f"demo: the worker {_trouble(worker)}. Its log: {_log_path(app)}; run it again "
                "to go on with what is left."
            )
        time.sleep(POLL_SECONDS)
        earlier, tally = tally, _tally(app, ids)
        if tally != earlier:
            moved_at = time.monotonic()
        draw(tally.over)
    return tally


def _trouble(worker: "subprocess.Popen[bytes]") -> str:
    code = worker.poll()
    return f"did nothing for {PATIENCE:g} s" if code is None else f"ended with code {code}"


@contextlib.contextmanager
def _worker(app: "App") -> Iterator["subprocess.Popen[bytes]"]:
    """Run a worker; it is gone at the end of the block."""
    command = [sys.executable, "-m", "quire", "worker", "--plugin", PLUGIN]
    environment = {**os.environ, "QUIRE_HOME": str(app.settings.home)}
    with _log_path(app).open("ab") as log:
        worker = subprocess.Popen(  # noqa: S603
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield worker
    finally:
        worker.terminate()
        worker.wait()


def _log_path(app: "App") -> Path:
    return app.settings.home / "demo.log"


@contextlib.contextmanager
def _bar(start: int) -> Iterator[Callable[[int], None]]:
    if not sys.stdout.isatty():
        yield lambda over: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("jobs     "), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console.rich_console()) as progress:
        drawn = progress.add_task("", total=JOBS, completed=start)
        yield lambda over: progress.update(drawn, completed=over)


def _conclude(app: "App", ids: Sequence[int]) -> int:
    """Count the effects, examine the database, and say how to go on."""
    from quire.cli.database import lines
    from quire.control import doctor

    rows = _rows(app, ids)
    tally = _tally(app, ids)
    twice = sum(1 for number in rows.values() if number > 1)
    console.say(
        f"count     {tally.completed} of {JOBS} jobs completed; {sum(rows.values())} rows for "
        f"{len(rows)} jobs, {twice} of them twice"
    )
    report = doctor.examine(app.db, sweep_interval=app.settings.sweep_interval)
    for line in lines(report):
        console.say(f"doctor    {line}")
    is_right = tally.completed == len(rows) == JOBS and not twice and report.is_healthy
    wrong = "not as promised; `quire jobs --kind ledger` shows how each job ended"
    console.say(f"result    {'each job happened once' if is_right else wrong}")
    console.say()
    console.say("Now try:")
    console.say("  make up                                               # until Ctrl-C")
    console.say("  .venv/bin/quire jobs")
    console.say("  .venv/bin/quire submit wait --arg seconds=5 --wait    # while it is up")
    return 0 if is_right else 1


def _rows(app: "App", ids: Sequence[int]) -> dict[int, int]:
    """Count the rows that each of the jobs wrote."""
    with app.db.read() as conn:
        found: Any = conn.exec_driver_sql(
            f"SELECT job_id, count(*) FROM {TABLE} GROUP BY job_id"  # noqa: S608
        ).all()
    wanted = set(ids)
    return {job_id: number for job_id, number in found if job_id in wanted}
