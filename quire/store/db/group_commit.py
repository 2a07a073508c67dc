"""Group commit on SQLite: threads that write at the same time share one transaction and one flush.

The transactions have a connection of their own and use the driver directly: a pool, and what
SQLAlchemy does around a transaction, would cost more than a short change itself.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

from quire.store.db import sqlite

R = TypeVar("R")


class _Change(Generic[R]):
    """A change that waits to be committed, and what became of it."""

    __slots__ = ("act", "error", "is_over", "result")

    def __init__(self, act: Callable[[Any], R]) -> None:
        self.act = act
        self.is_over = False
        self.result: R
        self.error: BaseException | None = None


class GroupCommit:
    """Runs changes one after another; the thread that has the turn takes all that wait."""

    def __init__(self, engine: sa.Engine, path: Path) -> None:
        self._engine = engine
        self._path = path
        self._turn = threading.Lock()
        self._waiting: list[_Change[Any]] = []
        self._pooled: sa.PoolProxiedConnection | None = None
        self._cursor: Any = None

    def run(self, act: Callable[[Any], R], *, timeout: float, max_hold: float) -> R:
        """Run `act` with a cursor, in a transaction that it may share; for the limits see `lock`.

        `act` must not raise after a write. Errors are the driver's; nothing was committed then.
        """
        change = _Change(act)
        self._waiting.append(change)
        with self._turn:
            if not change.is_over:
                taken, self._waiting = self._waiting, []
                self._commit(taken, timeout, max_hold)
        if change.error is not None:
            raise change.error
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
            change.is_over = True

    def _begin(self, timeout: float, max_hold: float) -> Any:
        if self._pooled is None:
            self._pooled = self._engine.raw_connection()
            self._cursor = self._pooled.cursor()
            self._cursor.execute("PRAGMA busy_timeout = 0")
        sqlite.lock(self._cursor, self._path, timeout, max_hold)
        sqlite.check_still_there(self._pooled, self._path)
        return self._cursor

    def _drop(self) -> None:
        if self._pooled is not None:
            self._pooled.invalidate()
            self._pooled.close()
            self._pooled = None
