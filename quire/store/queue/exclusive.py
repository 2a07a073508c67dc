"""Exclusive keys: at most one running task has the same key.

A claim that meets a held key makes the task wait, and fails it after some tries. The guarantee is
a unique index over running tasks; this module keeps claims from violating it.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import Reason, TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import is_state, tasks
from quire.store.queue.transition import Transition

t = tasks.c
WAIT_SECONDS = 15.0
MAX_TRIES = 10


def running_keys(conn: sa.Connection, head: Sequence[Any]) -> set[str | None]:
    """Return the exclusive keys of these tasks that a running task holds."""
    keys = {row.exclusive_key for row in head if row.exclusive_key is not None}
    if not keys:
        return set()
    wanted = {"keys": dialect.encode_rows([[key] for key in sorted(keys)])}
    return set(conn.scalars(_running(conn), wanted))


@dialect.statement
def _running(conn: sa.Connection) -> sa.Select[Any]:
    wanted = dialect.json_rows(conn, "keys", {"key": "text"})
    return (
        sa.select(t.exclusive_key)
        .join(wanted, wanted.c.key == t.exclusive_key)
        .where(is_state(t.state, TaskState.RUNNING))
    )


def wait_for_key(
    conn: sa.Connection, ids: Sequence[int], moves: Transition, *, now: Instant
) -> None:
    """Make ready tasks wait for the holder of their key, or fail them after ten tries."""
    # Every tenth time, because a revived task has ten tries again.
    rows = conn.execute(sa.select(t.id, t.lock_tries + 1).where(t.id.in_(sorted(ids)))).all()
    waiting = [(task_id, tries) for task_id, tries in rows if tries % MAX_TRIES]
    locked_out = [(task_id, tries) for task_id, tries in rows if tries % MAX_TRIES == 0]
    why = f"another task of the same document was running at each of {MAX_TRIES} tries"
    held = {"reason": Reason.LOCK_HELD.value, "due_at": now.wall + WAIT_SECONDS}
    tries = ("lock_tries",)
    moves.apply(waiting, "hold", source=TaskState.READY, columns=tries, **held)
    moves.apply(locked_out, "lock_out", source=TaskState.READY, columns=tries, error=why)
