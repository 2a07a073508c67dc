"""What a command does itself if no worker runs on the embedded database.

It starts a worker for as long as it waits. If nothing in its sources has changed, it lists them in
this process: starting a worker takes longer than that. Whether it is so is previewed first, because
files that are to be indexed must not wait for a listing without a worker.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice

from quire.app import App
from quire.cli import console, session
from quire.control import ingest, queries
from quire.control.ingest import IngestRequest
from quire.errors import WorkerStartFailed
from quire.model.contracts import MARK, in_queues
from quire.runtime.signals import PARENT_FD

#: Its log file in the home.
LOG = "ingest.log"
#: Seconds between checks that another worker is still alive.
CHECK_SECONDS = 5.0
#: More files are left to a worker, whose child renews the lease while it lists them.
MOST_FILES = 5_000
#: Verdicts of files that need no work.
_IDLE = ("same", "failed", "gone", "left out")
NO_WORKER = "No worker is running. Start one in another terminal with `quire up`."


class OwnWorker:
    """The worker of this command, if it needs one."""

    def __init__(self, app: App, process: subprocess.Popen[bytes] | None) -> None:
        self._app = app
        self._process = process
        self._is_alone = False
        self._check_at = 0.0

    def check(self) -> None:
        """Raise if our worker has exited; warn if no other worker is alive."""
        if self._process is None:
            self._warn_without_workers()
        if self._process is not None and (code := self._process.poll()) is not None:
            raise WorkerStartFailed(
                f"worker: it exited with code {code}. Its log is {self._app.settings.home / LOG}. "
                "Finished work is kept. Run `quire up` to continue."
            )

    def _warn_without_workers(self) -> None:
        """Warn once when the last worker is gone."""
        if time.monotonic() < self._check_at:
            return
        self._check_at = time.monotonic() + CHECK_SECONDS
        was_alone, self._is_alone = self._is_alone, not queries.any_worker_alive(self._app.caller)
        if self._is_alone and not was_alone:
            console.note(NO_WORKER)


@contextlib.contextmanager
def if_needed(app: App) -> Iterator[OwnWorker]:
    """Run a worker during the block, unless one is alive or the database is PostgreSQL."""
    if not app.db.is_embedded or queries.any_worker_alive(app.caller):
        other = OwnWorker(app, None)
        other.check()
        yield other
        return
    session.check_extras(app.settings)
    parent_pipe, write_end = os.pipe()
    try:
        process = _started(app, parent_pipe)
    finally:
        os.close(parent_pipe)
    try:
        yield OwnWorker(app, process)
    finally:
        process.terminate()
        process.wait()
        os.close(write_end)


def _started(app: App, parent_pipe: int) -> subprocess.Popen[bytes]:
    """Start a worker that exits when this process does, however that happens."""
    # The queues of all kinds: no other worker serves them.
    used = {kind.queue for kind in app.registry.kinds.values()} | set(app.settings.queues)
    queues = [word for queue in sorted(used) for word in ("--queue", queue)]
    with (app.settings.home / LOG).open("ab") as log:
        return subprocess.Popen(  # noqa: S603  # names of queues were checked
            [sys.executable, "-P", "-m", "quire", "worker", *queues],
            env={**os.environ, "QUIRE_HOME": str(app.settings.home), PARENT_FD: str(parent_pipe)},
            pass_fds=[parent_pipe],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C goes to this command, which then stops the job.
            start_new_session=True,
        )


def list_unchanged(app: App, request: IngestRequest) -> None:
    """Run the listing of a request that was submitted where no worker is, if that is all."""
    if not all(source.startswith(("/", "file:")) for source in request.sources):
        return
    if queries.count_jobs(app.caller, {"kind": "ingest", "states": ["pending", "running"]}) > 1:
        return  # the other one may be next
    files = ingest.preview(app.caller, app.settings.for_children, request)
    for count, file in enumerate(islice(files, MOST_FILES + 1)):
        if file.verdict not in _IDLE or count == MOST_FILES:
            return
    from quire.ingest import kinds
    from quire.runtime.inline import InlineWorker

    [kind] = in_queues([getattr(kinds.ingest, MARK)], app.settings.queue_by_kind)
    worker = InlineWorker(
        app.db, {kind.name: kind}, app.settings.for_children, f"inline-{os.getpid()}"
    )
    for lease in worker.claim(kind.queue):
        worker.run(lease)
