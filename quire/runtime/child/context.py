"""The context of a running task: progress, stop, durable steps, fenced writes, scratch space.

It lives in the child process. The database is opened only when a handler uses it.
"""

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from quire.errors import LeaseLost, Stopped
from quire.home import make_folder

if TYPE_CHECKING:
    from quire.model.outcomes import Lease
    from quire.store.db.engine import Database
    from quire.store.queue.fenced import Transaction

T = TypeVar("T")

#: The databases that this process has open, by URL.
_databases: dict[str, "Database"] = {}


class Backend(Protocol):
    """What a context needs from whoever runs the task: the child, or `quire.testing`."""

    scratch_root: Path
    settings: dict[str, Any]
    is_settled: bool

    def is_revoked(self) -> bool:
        """Tell whether the task must stop."""

    def report_progress(self, fraction: float | None, message: str | None) -> None:
        """Report progress."""

    def log_line(self, text: str) -> None:
        """Write a line to the log of the job."""

    def mark_settled(self) -> None:
        """Record that the handler committed the end of the task itself."""


class Context:
    """The running task, as its handler sees it."""

    __slots__ = (
        "_backend", "_db", "_fence", "_scratch", "_started",
        "attempt", "job_id", "max_attempts", "origin", "task_id",
    )  # fmt: skip

    def __init__(self, lease: "Lease", backend: Backend, db: "Database | None" = None) -> None:
        #: The id of the task.
        self.task_id = lease.task_id
        #: The id of its job.
        self.job_id = lease.job_id
        #: The number of this attempt, starting at 1.
        self.attempt = lease.attempt
        #: The number of attempts before the task fails.
        self.max_attempts = lease.max_attempts
        #: Where the job was submitted: `local` (on the operator's machine) or `api`.
        self.origin = lease.origin
        self._fence = lease.fence
        self._backend = backend
        self._started = time.monotonic()
        self._scratch: Path | None = None
        self._db = db

    @property
    def idempotency_key(self) -> str:
        """A key that is the same in every attempt, for external services that accept one."""
        return f"quire-{self.job_id}-{self.task_id}"

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that writes to the log of the job, shown by `quire logs`."""
        logger = logging.getLogger("quire.job")
        if not logger.handlers:
            logger.addHandler(_JobLog())
            logger.setLevel(logging.INFO)
            logger.propagate = False
        return logging.LoggerAdapter(logger, {"backend": self._backend})

    @property
    def scratch(self) -> Path:
        """A temporary folder of this attempt, removed when the attempt ends."""
        if self._scratch is None:
            folder = self._backend.scratch_root / f"{self.task_id}.{self._fence}"
            make_folder(folder)
            self._scratch = folder
        return self._scratch

    @property
    def database(self) -> "Database":
        """The database, for reading."""
        from quire.store import open_database

        if self._backend.is_settled:
            raise LeaseLost(
                f"task {self.task_id}: it has already ended; fenced() is its last transaction"
            )
        if self._db is not None:
            return self._db
        settings = self._backend.settings
        url = settings["url"]
        if url not in _databases:
            _databases[url] = open_database(
                url,
                synchronous=settings["sqlite_synchronous"],
                lease_seconds=settings["lease_seconds"],
            )
        return _databases[url]

    @property
    def settings(self) -> "Mapping[str, Any]":
        """The settings that the worker passes to its children."""
        return self._backend.settings

    def progress(self, fraction: float | None = None, message: str | None = None) -> None:
        """Report progress: a fraction from 0 to 1, a message, or both."""
        if fraction is not None:
            fraction = min(max(float(fraction), 0.0), 1.0)
        self._backend.report_progress(fraction, message)

    def check(self) -> None:
        """Raise `Stopped` if the job was stopped. Call it between files, pages or rows."""
        if self._backend.is_revoked():
            raise Stopped(f"job {self.job_id} was stopped")

    @contextlib.contextmanager
    def fenced(self) -> "Iterator[Transaction]":
        """Open the last transaction of the task: its writes commit together with the task's end.

        Nothing is written if the lease was lost.
        """
        from quire.store.queue import fenced

        self.check()
        with fenced.ending(
            self.database, self.task_id, self._fence,
            spent=time.monotonic() - self._started,
            worker_id=self._backend.settings.get("worker_id"),
        ) as transaction:  # fmt: skip
            yield transaction
        self._backend.mark_settled()
        self._wake_workers([transaction])

    def step(self, name: str, act: Callable[..., Any]) -> Any:
        """Run `act` once across all attempts; later attempts get the stored result.

        An `act` without parameters runs before its result is stored. One with a parameter gets
        the transaction in which the result is stored, for writes of its own.
        """
        from quire.store.queue import fenced

        self.check()
        takes_transaction = _takes_argument(act)
        seen: list[Transaction] = []
        result = fenced.step(
            self.database, self.task_id, self._fence, name,
            _remembering(act, seen) if takes_transaction else act, takes_transaction,
        )  # fmt: skip
        self._wake_workers(seen)
        return result

    def recall(self, name: str) -> tuple[bool, Any]:
        """Return whether the step `name` has a stored result, and that result."""
        from quire.store.queue import fenced

        return fenced.find_step(self.database, self.task_id, name)

    def write(self, act: "Callable[[Transaction], T]") -> T:
        """Run `act` in a fenced transaction while the task continues.

        A retry may write the same again.
        """
        from quire.store.queue import fenced

        self.check()
        seen: list[Transaction] = []
        result: T = fenced.write(self.database, self.task_id, self._fence, _remembering(act, seen))
        self._wake_workers(seen)
        return result

    def close(self) -> None:
        """Remove the scratch folder."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _wake_workers(self, transactions: "list[Transaction]") -> None:
        """Wake the workers of this home if committed transactions have added tasks."""
        home = self._backend.settings.get("home")
        if home and any(transaction.has_children for transaction in transactions):
            from quire.runtime import wakeup

            wakeup.wake(Path(home))


class _JobLog(logging.Handler):
    """Sends the log records of a handler to its job."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        record.backend.log_line(level + self.format(record))  # type: ignore[attr-defined]


def _remembering(act: Callable[..., Any], seen: "list[Transaction]") -> Callable[..., Any]:
    """Return `act` such that the transaction it was given is appended to `seen`."""

    def remembering(transaction: "Transaction") -> Any:
        seen.append(transaction)
        return act(transaction)

    return remembering


def _takes_argument(act: Callable[..., Any]) -> bool:
    """Tell whether a step has a positional parameter without a default: the transaction."""
    import inspect

    return any(
        p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        for p in inspect.signature(act).parameters.values()
    )
