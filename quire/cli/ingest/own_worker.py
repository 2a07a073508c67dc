"""A worker for the length of one command, where none runs on the embedded database."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from quire.cli import console, session
from quire.errors import WorkerStartFailed

if TYPE_CHECKING:
    from quire.app import App

#: Where its log goes, in the home.
LOG = "ingest.log"


#: Seconds between two looks whether a worker of somebody else still lives.
LOOK_SECONDS = 5.0
NOBODY = "no worker is running: start one in another terminal with `quire up`."


class OwnWorker:
    """The worker of this command, if it needs one."""

    def __init__(self, app: "App", process: "subprocess.Popen[bytes] | None") -> None:
        self._app = app
        self._process = process
        self._is_alone = False
        self._look_at = 0.0

    @property
    def is_here(self) -> bool:
        """Tell whether this command runs its own worker."""
        return self._process is not None

    def check(self) -> None:
        """Raise where the worker has ended before its work did; say so of somebody else's."""
        if self._process is None:
            self._look()
        if self._process is not None and (code := self._process.poll()) is not None:
            raise WorkerStartFailed(
                f"worker: it ended with code {code}. Its log: {self._app.settings.home / LOG}; "
                "nothing that was done is lost, run `quire up` to go on."
            )

    def _look(self) -> None:
        """Say when nobody works any more: this would be waited for in silence."""
        from quire.cli import backend

        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        was_alone, self._is_alone = self._is_alone, not backend.any_worker(self._app)
        if self._is_alone and not was_alone:
            console.note(NOBODY)


@contextlib.contextmanager
def if_needed(app: "App") -> Iterator[OwnWorker]:
    """Run a worker during the block, unless one lives or the database is a server's."""
    from quire.cli import backend

    if not app.db.is_embedded or backend.any_worker(app):
        other = OwnWorker(app, None)
        other.check()
        yield other
        return
    session.check_extras(app.settings)
    parent_pipe, held = os.pipe()
    try:
        process = _started(app, parent_pipe)
    finally:
        os.close(parent_pipe)
    try:
        yield OwnWorker(app, process)
    finally:
        process.terminate()
        process.wait()
        os.close(held)


def _queues(app: "App") -> list[str]:
    """Name every queue that a kind is in: nobody else is there to serve one."""
    used = {kind.queue for kind in app.registry.kinds.values()} | set(app.settings.queues)
    return [word for queue in sorted(used) for word in ("--queue", queue)]


def _started(app: "App", parent_pipe: int) -> "subprocess.Popen[bytes]":
    """Start a worker that ends when this process does, however that happens."""
    from quire.runtime.signals import PARENT_FD

    with (app.settings.home / LOG).open("ab") as log:
        return subprocess.Popen(  # noqa: S603  # names of queues were checked
            [sys.executable, "-m", "quire", "worker", *_queues(app)],
            env={**os.environ, "QUIRE_HOME": str(app.settings.home), PARENT_FD: str(parent_pipe)},
            pass_fds=[parent_pipe],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C is for this command, which then stops the job.
            start_new_session=True,
        )
