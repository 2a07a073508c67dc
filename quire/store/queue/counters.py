"""What a transaction changes about jobs: tasks by state, cost, error and result."""

from typing import Any

import sqlalchemy as sa

from quire.model.states import TaskState
from quire.store.db.schema.queue import is_state, tasks

#: States in which a task's cost is no longer outstanding; of a part of a job, `_GIVEN_UP` too.
_COUNTED = (TaskState.DONE.value, TaskState.SKIPPED.value)
_GIVEN_UP = (TaskState.FAILED.value, TaskState.LOST.value)
#: Where `Delta.moved` counts the tasks of a state.
POSITIONS = {state.value: at for at, state in enumerate(TaskState)}


class Delta:
    """What a transaction changes about one job."""

    __slots__ = ("cost_done", "cost_total", "error", "moved", "result", "retry_count")

    def __init__(self) -> None:
        self.moved = [0] * len(POSITIONS)
        self.cost_total = self.cost_done = 0.0
        self.retry_count = 0
        self.error: str | None = None
        self.result: str | None = None

    def move(self, source: str | None, target: str | None, count: int = 1) -> None:
        """Count tasks that left one state and entered another."""
        if source is not None:
            self.moved[POSITIONS[source]] -= count
        if target is not None:
            self.moved[POSITIONS[target]] += count


class Deltas(dict[int, Delta]):
    """The changes of one transaction, by job."""

    def __missing__(self, job_id: int) -> Delta:
        self[job_id] = delta = Delta()
        return delta


def is_over(state: str, parent_id: int | None, document_id: int | None) -> bool:
    """Tell whether a task's cost counts as done: nobody waits for a file that failed.

    A task without parent and document is the whole job: its failure is no progress.
    """
    is_part = parent_id is not None or document_id is not None
    return state in _COUNTED or (is_part and state in _GIVEN_UP)


def over() -> sa.ColumnElement[bool]:
    """Return `is_over` as a condition on a task's row."""
    t = tasks.c
    is_part: Any = sa.or_(t.parent_id.is_not(None), t.document_id.is_not(None))
    return sa.or_(is_state(t.state, *_COUNTED), sa.and_(is_part, is_state(t.state, *_GIVEN_UP)))
