"""Group commit on SQLite: threads that write at the same time share one transaction and one flush.

The transactions have a connection of their own and use the driver directly: a pool, and what
SQLAlchemy does around a transaction, would cost more than a short change itself.

SQLite would flush its log while it holds the write lock. Here the lock is released first, so that
the next transaction, of this process or another, does not wait for the disk. A change is on disk
when `run` returns; before that, others may already see it.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from quire.errors import Unconfirmed
from quire.store.db import sqlite

R = TypeVar("R")
_FULL = 2
#: macOS has only the other.
_flush: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class _Change(Generic[R]):
    """A change that waits to be committed, and what became of it."""

    __slots__ = ("act", "error", "is_over", "number", "result")

    def __init__(self, act: Callable[[Any], R]) -> None:
        self.act = act
        self.is_over = False
        #: Of its transaction, once it is committed.
        self.number = 0
        self.result: R
        self.error: BaseException | None = None


class GroupCommit:
    """Runs changes one after another; the thread that has the turn takes all that wait."""

    def __init__(self, engine: sa.Engine, path: Path) -> None:
        self._engine = engine
        self._path = path
        self._turn = threading.Lock()
        # A thread adds to it at any time.
        self._waiting: deque[_Change[Any]] = deque()
        self._pooled: sa.PoolProxiedConnection | None = None
        self._cursor: Any = None
        #: SQLite's log; None if SQLite flushes it itself, or does not have to.
        self._log: int | None = None
        self._flushing = threading.Lock()
        # The last transaction that was committed, and the last one that was flushed.
        self._committed = self._flushed = 0
        #: Transactions that the disk failed to keep.
        self._lost = range(0)

    def run(self, act: Callable[[Any], R], *, timeout: float, max_hold: float) -> R:
        """Run `act` with a cursor, in a transaction that it may share; for the limits see `lock`.

        `act` must not raise after a write. Errors are the driver's; nothing was committed then.
        """
        change = _Change(act)
        self._waiting.append(change)
        with self._turn:
            if not change.is_over:
                taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
                self._commit(taken, timeout, max_hold)
        if change.error is not None:
            raise change.error
        self._wait_for_disk(change.number)
        return change.result

    def close(self) -> None:
        """Close the connection; the next change opens another."""
        with self._turn:
            self._drop()

    def _commit(self, taken: list[_Change[Any]], timeout: float, max_hold: float) -> None:
        has_lock = False
        try:
            cursor = self._begin(timeout, max_hold)
            note = sqlite.note_writer(self._path)
            has_lock = True
            try:
                for change in taken:
                    change.result = change.act(cursor)
                cursor.execute("COMMIT")
                self._committed += 1
            finally:
                sqlite.erase_writer(note)
        except BaseException as error:
            self._drop()
            if has_lock and len(taken) > 1:
                # One of them failed, and nothing was committed: it must not fail the others.
                for change in taken:
                    self._commit([change], timeout, max_hold)
                if isinstance(error, Exception):
                    return
                raise
            for change in taken:
                change.error = error
        for change in taken:
            change.number = self._committed
            change.is_over = True

    def _wait_for_disk(self, number: int) -> None:
        """Flush the log, unless another thread has done so since this transaction."""
        with self._flushing:
            if number > self._flushed:
                self._flush_log()
            if number in self._lost:
                raise Unconfirmed(
                    f"database {self._path}: the disk failed while a change was flushed: it may "
                    "have happened. Look before you ask for it again."
                )

    def _flush_log(self) -> None:
        last = self._committed
        if self._log is not None:
            try:
                _flush(self._log)
            except OSError:
                # The system reports a failure once: another flush would seem to work.
                self._lost = range(self._flushed + 1, last + 1)
                self._close_log()
        self._flushed = last

    def _close_log(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None

    def _begin(self, timeout: float, max_hold: float) -> Any:
        if self._pooled is None:
            self._pooled = self._engine.raw_connection()
            self._cursor = self._pooled.cursor()
            self._cursor.execute("PRAGMA busy_timeout = 0")
            self._open_log()
        if self._lost:
            self._cursor.execute("PRAGMA synchronous = full")
        sqlite.lock(self._cursor, self._path, timeout, max_hold)
        sqlite.check_still_there(self._pooled, self._path)
        return self._cursor

    def _open_log(self) -> None:
        """Take the flush of the log over from SQLite, unless the disk has failed before."""
        run = self._cursor.execute
        mode, level = run("PRAGMA journal_mode").fetchone(), run("PRAGMA synchronous").fetchone()
        if self._lost or mode != ("wal",) or level != (_FULL,):
            return
        with contextlib.suppress(FileNotFoundError):
            self._log = os.open(f"{self._path}-wal", os.O_RDWR | os.O_CLOEXEC)
            run("PRAGMA synchronous = normal")

    def _drop(self) -> None:
        with self._flushing:
            self._flush_log()
            self._close_log()
        if self._pooled is not None:
            self._pooled.invalidate()
            self._pooled.close()
            self._pooled = None
