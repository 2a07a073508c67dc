"""What a job handler gets as its first argument.

A handler runs in a child process of a worker; `quire.runtime.child.context.Context` is the
implementation there. Code below the runtime, such as the stages of ingestion, knows this protocol.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:  # for annotations only: the model never imports the store
    from quire.store.db.engine import Database
    from quire.store.queue.fenced import Transaction

T = TypeVar("T")


class TaskContext(Protocol):
    """The running task, as its handler sees it."""

    @property
    def task_id(self) -> int:
        """The id of the task."""

    @property
    def job_id(self) -> int:
        """The id of its job."""

    @property
    def attempt(self) -> int:
        """The number of this attempt, starting at 1."""

    @property
    def max_attempts(self) -> int:
        """The number of attempts before the task fails."""

    @property
    def origin(self) -> str:
        """Where the job was submitted: `local` (on the operator's machine) or `api`."""

    @property
    def idempotency_key(self) -> str:
        """A key that is the same in every attempt, for external services that accept one."""

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that writes to the log of the job, shown by `quire logs`."""

    @property
    def scratch(self) -> Path:
        """A temporary folder of this attempt, removed when the attempt ends."""

    @property
    def database(self) -> "Database":
        """The database, for reading."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings that the worker passes to its children."""

    def progress(self, fraction: float | None = None, message: str | None = None) -> None:
        """Report progress: a fraction from 0 to 1, a message, or both."""

    def check(self) -> None:
        """Raise `Stopped` if the job was stopped. Call it between files, pages or rows."""

    def fenced(self) -> "AbstractContextManager[Transaction]":
        """Open the last transaction of the task: its writes commit together with the task's end."""

    def step(self, name: str, act: Callable[..., Any]) -> Any:
        """Run `act` once across all attempts; later attempts get the stored result."""

    def recall(self, name: str) -> tuple[bool, Any]:
        """Return whether the step `name` has a stored result, and that result."""

    def write(self, act: "Callable[[Transaction], T]") -> T:
        """Run `act` in a fenced transaction while the task continues."""
