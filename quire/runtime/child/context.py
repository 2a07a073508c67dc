"""What a handler gets: progress, stop, durable steps, fenced writes, child tasks, scratch space.

It lives in the child process. The database is opened only when a handler asks for it.
"""

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from quire.errors import LeaseLost, Stopped

if TYPE_CHECKING:
    from quire.runtime.child.main import Port
    from quire.runtime.child.wire import Assignment
    from quire.store.db.engine import Database
    from quire.store.queue.fenced import Transaction

T = TypeVar("T")

_open: dict[str, "Database"] = {}


class Context:
    """The running task, as its handler sees it."""

    __slots__ = ("_began", "_db", "_port", "_scratch", "_task")

    def __init__(self, task: "Assignment", port: "Port") -> None:
        self._task = task
        self._port = port
        self._began = time.monotonic()
        self._scratch: Path | None = None
        self._db: Database | None = None

    @property
    def task_id(self) -> int:
        """The task's id."""
        return self._task.task_id

    @property
    def job_id(self) -> int:
        """The id of the job that it belongs to."""
        return self._task.job_id

    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
        return self._task.attempt

    @property
    def max_attempts(self) -> int:
        """How many tries there are."""
        return self._task.max_attempts

    @property
    def idempotency_key(self) -> str:
        """A key that is the same in every try: give it to services that must act once."""
        return self._task.key

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines go to the job's own log, which `quire logs` shows."""
        logger = logging.getLogger("quire.job")
        if not logger.handlers:
            logger.addHandler(_ToJobLog())
            logger.setLevel(logging.INFO)
            logger.propagate = False
        return logging.LoggerAdapter(logger, {"port": self._port})

    @property
    def scratch(self) -> Path:
        """A folder of this run's own, removed when the run ends."""
        if self._scratch is None:
            folder = self._port.scratch_root / f"{self.task_id}.{self._task.fence}"
            folder.mkdir(parents=True, exist_ok=True)
            self._scratch = folder
        return self._scratch

    def progress(self, fraction: float | None = None, message: str | None = None) -> None:
        """Say how far the work has come (0 to 1) and what it is doing."""
        if fraction is not None:
            fraction = min(max(float(fraction), 0.0), 1.0)
        self._port.report_progress(fraction, message)

    def check(self) -> None:
        """Raise `Stopped` if the job was stopped; call it between files, pages or rows."""
        if self._port.is_revoked():
            raise Stopped(f"job {self.job_id} was stopped")

    @contextlib.contextmanager
    def fenced(self) -> "Iterator[Transaction]":
        """Open the task's last transaction: its writes and the task's end commit together.

        Nothing is written where the task has another holder by now.
        """
        from quire.store.queue import fenced

        self.check()
        with fenced.ending(
            self._database(), self.task_id, self._task.fence,
            spent=time.monotonic() - self._began, worker_id=self._port.settings.get("worker_id"),
        ) as transaction:  # fmt: skip
            yield transaction
        self._port.mark_settled()
        self._ring([transaction])

    def step(self, name: str, act: Callable[..., Any]) -> Any:
        """Do something once over all tries: a later try gets the stored result instead.

        An `act` without parameter runs first and its result is stored; one with a parameter
        gets the transaction in which the result is stored, for writes of its own.
        """
        from quire.store.queue import fenced

        self.check()
        takes = _takes_argument(act)
        seen: list[Transaction] = []
        noted = _noting(act, seen) if takes else act
        made = fenced.step(self._database(), self.task_id, self._task.fence, name, noted, takes)
        self._ring(seen)
        return made

    def write(self, act: "Callable[[Transaction], T]") -> T:
        """Write under the fence while the task goes on; a later try may write the same again."""
        from quire.store.queue import fenced

        self.check()
        seen: list[Transaction] = []
        made: T = fenced.write(self._database(), self.task_id, self._task.fence, _noting(act, seen))
        self._ring(seen)
        return made

    def _ring(self, seen: "list[Transaction]") -> None:
        """Wake the workers of this home for tasks that were added and committed."""
        home = self._port.settings.get("home")
        if home and any(transaction.has_seeds for transaction in seen):
            from quire.runtime import wakeup

            wakeup.wake(Path(home))

    def recall(self, name: str) -> tuple[bool, Any]:
        """Return whether a step was made by this or an earlier try, and its result."""
        from quire.store.queue import fenced

        return fenced.recall(self._database(), self.task_id, name)

    @property
    def database(self) -> "Database":
        """The database, for reading."""
        return self._database()

    @property
    def settings(self) -> "Mapping[str, Any]":
        """What the worker tells its children: the home, endpoints and limits."""
        return self._port.settings

    def close(self) -> None:
        """Remove the scratch folder."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def use(self, db: "Database") -> None:
        """Write through this database instead of opening one; for tests in one process."""
        self._db = db

    def _database(self) -> "Database":
        from quire.store import open_database

        if self._port.is_settled:
            raise LeaseLost(f"task {self.task_id}: it has ended; fenced() is its last transaction")
        if self._db is not None:
            return self._db
        settings = self._port.settings
        url = settings["url"]
        if url not in _open:
            _open[url] = open_database(
                url,
                synchronous=settings["sqlite_synchronous"],
                lease_seconds=settings["lease_seconds"],
            )
        return _open[url]


class _ToJobLog(logging.Handler):
    """Sends a handler's log lines to its job."""

    def emit(self, record: logging.LogRecord) -> None:
        word = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        record.port.say(word + self.format(record))  # type: ignore[attr-defined]


def _noting(act: Callable[..., Any], seen: "list[Transaction]") -> Callable[..., Any]:
    """Return `act` such that the transaction it was given is known afterwards."""

    def noted(transaction: "Transaction") -> Any:
        seen.append(transaction)
        return act(transaction)

    return noted


def _takes_argument(act: Callable[..., Any]) -> bool:
    """Tell whether a step wants the transaction: a positional parameter without a default."""
    import inspect

    return any(
        p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        for p in inspect.signature(act).parameters.values()
    )
