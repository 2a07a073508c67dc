"""Aging: tasks that wait long get a higher priority, one level at a time; jobs keep theirs."""

import sqlalchemy as sa

from quire.clock import Instant
from quire.model import fair
from quire.model.states import TaskState
from quire.store.db.schema.queue import bands, is_state, owners, tasks
from quire.store.queue import order

t = tasks.c


def promote(conn: sa.Connection, *, now: Instant, after: float) -> list[int]:
    """Promote the first task per owner and priority if it waited for `after` seconds."""
    promoted = []
    for row in conn.execute(_heads()).all():
        if row.task_id is None:
            continue
        task = conn.execute(
            sa.select(t.id, t.owner_id, t.queue, t.priority, t.cost, t.ready_at)
            .where(t.id == row.task_id, is_state(t.state, TaskState.READY))
            .with_for_update(skip_locked=True)
        ).one_or_none()
        if task is None or task.ready_at > now.wall - after or task.priority != row.priority:
            continue
        band = task.owner_id, task.queue, task.priority - 1
        last = order.last_tags(conn, [band])[band]
        tag = fair.next_tag(last, task.cost, row.weight)
        conn.execute(
            sa.update(tasks)
            .where(t.id == task.id, is_state(t.state, TaskState.READY))
            .values(priority=task.priority - 1, fair_tag=tag, ready_at=now.wall)
        )
        promoted.append(task.id)
    return promoted


def _heads() -> sa.Select[tuple[int, int, float]]:
    """Select each owner's first ready task per queue and priority, one index lookup each."""
    # Every priority below the highest, of every queue that was ever claimed from.
    # A UNION, because SQLite cannot name the columns of VALUES.
    levels = sa.union_all(
        *(sa.select(sa.literal_column(str(p), sa.Integer).label("priority")) for p in range(2, 11))
    ).subquery("levels")
    queues = sa.select(bands.c.queue).distinct().subquery("queues")
    every = sa.select(queues.c.queue, levels.c.priority).join_from(queues, levels, sa.true())
    b = every.subquery("b")
    first = (
        sa.select(t.id)
        .where(
            is_state(t.state, TaskState.READY),
            t.owner_id == owners.c.id,
            t.queue == b.c.queue,
            t.priority == b.c.priority,
        )
        .order_by(t.fair_tag)
        .limit(1)
        .correlate(owners, b)
        .scalar_subquery()
    )
    return sa.select(first.label("task_id"), b.c.priority, owners.c.weight).select_from(
        owners.join(b, sa.true())
    )
