"""Group commit: threads that write at the same time share one transaction and one flush."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import sqlalchemy as sa

R = TypeVar("R")


class _Change(Generic[R]):
    """A change that waits to be committed, and what became of it."""

    __slots__ = ("act", "error", "is_over", "result")

    def __init__(self, act: Callable[[sa.Connection], R]) -> None:
        self.act = act
        self.is_over = False
        self.result: R
        self.error: BaseException | None = None


class GroupCommit:
    """Runs changes one after another; the thread that has the turn takes all that wait."""

    def __init__(self, begin: Callable[[], AbstractContextManager[sa.Connection]]) -> None:
        self._begin = begin
        self._turn = threading.Lock()
        self._waiting: list[_Change[Any]] = []

    def run(self, act: Callable[[sa.Connection], R]) -> R:
        """Run `act` in a transaction that it may share; `act` must not raise after a write."""
        change = _Change(act)
        self._waiting.append(change)
        with self._turn:
            if not change.is_over:
                taken, self._waiting = self._waiting, []
                self._commit(taken)
        if change.error is not None:
            raise change.error
        return change.result

    def _commit(self, taken: list[_Change[Any]]) -> None:
        try:
            with self._begin() as conn:
                for change in taken:
                    change.result = change.act(conn)
        except BaseException as error:
            for change in taken:
                change.error = error
        finally:
            for change in taken:
                change.is_over = True
