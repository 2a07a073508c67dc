"""Reads events in an order in which no later commit can insert one, so that a reader misses none.

PostgreSQL assigns an id before the commit, so a higher id may become visible first. There events
are ordered by (transaction, id), and only transactions older than every open one are read. SQLite
writes one transaction at a time, so the ids are the order. A dump that is restored into another
cluster brings transaction ids along that this cluster has not reached: `events.adopt_restored` puts
such events before all events of this cluster, and `local` finds the place of a cursor to one.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import iso
from quire.errors import BadInput
from quire.model.states import TaskState
from quire.store.db import dialect
from quire.store.db.schema.queue import events, is_state, jobs, owners, tasks
from quire.store.queue.events import shape

e, j, t = events.c, jobs.c, tasks.c
_TEXT = re.compile(r"(\d{1,18})-(\d{1,18})")
#: Events of one read.
PAGE = 500


class Cursor(NamedTuple):
    """A position in the order of events: everything up to it has been read."""

    xid: int
    id: int

    def __str__(self) -> str:
        # The transaction id that a restored event had: its cursor stays what it was.
        return f"{self.xid % dialect.XID_SHIFT}-{self.id}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Parse the text of a cursor."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise BadInput(
                f"cursor {text[:40]!r}: not a cursor of the event stream. Give the last `id` that "
                "you received, or none to start with new events."
            )
        return cls(int(found[1]), int(found[2]))


#: Before restored events, too.
_START = Cursor(-(1 << 62), 0)


class StreamedEvent(NamedTuple):
    """An event with its tenant and its position in the order."""

    cursor: Cursor
    tenant: str
    job_id: int | None
    name: str
    shape: dict[str, Any]


def has_restored(conn: sa.Connection) -> bool:
    """Tell whether there are events of another cluster that have no place in the order yet."""
    return dialect.has_foreign_xids(conn, events)


def head(conn: sa.Connection) -> Cursor:
    """Return the cursor behind everything that can be read now."""
    last = conn.scalar(sa.select(sa.func.max(e.id))) or 0
    # Events of the oldest open transaction and of later ones are still to come.
    return Cursor(max(dialect.oldest_active_xid(conn) - 1, 0), last)


def local(conn: sa.Connection, cursor: Cursor) -> Cursor:
    """Return the cursor, or the place of its event here if it is from another database.

    Such a cursor names a restored event, is ahead of every transaction (after a failover that lost
    some), or has no transaction (after a transfer from SQLite).
    """
    settled = dialect.oldest_active_xid(conn)
    if not settled:
        return Cursor(0, cursor.id)
    xid = conn.scalar(sa.select(e.xid).where(e.id == cursor.id))
    if xid is not None and str(Cursor(xid, cursor.id)) == str(cursor):
        return Cursor(xid, cursor.id)
    if 0 < cursor.xid <= settled:
        return cursor
    before = sa.select(e.xid, e.id).where(e.id <= cursor.id, e.xid < settled)
    row = conn.execute(before.order_by(e.id.desc()).limit(1)).one_or_none()
    return _START if row is None else Cursor(*row)


def read_after(
    conn: sa.Connection,
    tenants: Collection[str],
    cursor: Cursor,
    *,
    until: Cursor | None = None,
    job_id: int | None = None,
    limit: int = PAGE,
) -> list[StreamedEvent]:
    """List the events of tenants after a cursor, in order; optionally up to another, of one job."""
    settled = dialect.oldest_active_xid(conn)
    place: Any = sa.tuple_(e.xid, e.id) if settled else e.id
    whose = sa.func.coalesce(e.tenant, owners.c.tenant)
    query = (
        sa.select(events, whose.label("whose"))
        .join(jobs, j.id == e.job_id, isouter=True)
        .join(owners, owners.c.id == j.owner_id, isouter=True)
        .where(place > _at(cursor, settled), whose.in_(sorted(tenants)))
        .order_by(*((e.xid, e.id) if settled else (e.id,)))
        .limit(limit)
    )
    if settled:
        query = query.where(e.xid < settled)
    if until is not None:
        query = query.where(place <= _at(until, settled))
    if job_id is not None:
        query = query.where(e.job_id == job_id)
    return [
        StreamedEvent(
            Cursor(row.xid or 0, row.id), row.whose, row.job_id, row.name,
            {**shape(row), "at": iso(row.at)},
        )
        for row in conn.execute(query)
    ]  # fmt: skip


def _at(cursor: Cursor, settled: int) -> Any:
    return sa.tuple_(sa.literal(cursor.xid), sa.literal(cursor.id)) if settled else cursor.id


class Activity(NamedTuple):
    """What a submission or a claim changes: these write no event."""

    last_job_id: int
    running: tuple[tuple[int, int, int], ...]  # job, task, fence

    def of_job(self, job_id: int) -> tuple[tuple[int, int, int], ...]:
        """Return the running tasks of one job."""
        return tuple(each for each in self.running if each[0] == job_id)


def activity(conn: sa.Connection, tenant: str) -> Activity:
    """Return the latest job and the running tasks of a tenant; equal values mean no change."""
    own: Sequence[int] = conn.scalars(sa.select(owners.c.id).where(owners.c.tenant == tenant)).all()
    latest = [sa.select(sa.func.max(j.id).label("id")).where(j.owner_id == o) for o in own]
    last = conn.scalar(sa.select(sa.func.max(sa.union_all(*latest).subquery().c.id))) if own else 0
    running = conn.execute(
        sa.select(t.job_id, t.id, t.fence)
        .where(is_state(t.state, TaskState.RUNNING), t.owner_id.in_(own))
        .order_by(t.id)
    )
    return Activity(last or 0, tuple((job, task, fence) for job, task, fence in running))
