"""The state of a job is written here and nowhere else.

A person's verb moves jobs by `move_jobs`. Otherwise a job's state follows from the counters of its
tasks: `update_counters` applies what a transaction changed and lets the state follow in the same
UPDATE. `doctor` compares the counters with the tasks themselves.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import JOB_ACTIVE, JOB_MOVES
from quire.store.db import dialect
from quire.store.db.engine import TransactionConflict, on_ended
from quire.store.db.schema.queue import has_state, is_state, jobs
from quire.store.queue.counters import POSITIONS, Delta

j = jobs.c
_EXTRAS = {
    "cost_total": "float",
    "cost_done": "float",
    "retry_count": "int",
    "error": "text",
    "result": "text",
}
#: Where a connection keeps the highest job that its transaction has locked; `begin` resets it.
_HIGHEST = "highest_job"
_COMPLETE, _FAIL, _CANCEL = JOB_MOVES["complete"], JOB_MOVES["fail"], JOB_MOVES["cancel"]


class Touched(NamedTuple):
    """A job whose counters were updated; `ended` says whether it has just ended."""

    id: int
    state: str
    ended: bool
    owner_id: int
    exclusive_key: str | None
    has_successors: bool
    error: str | None


def move_jobs(
    conn: sa.Connection,
    job_ids: Sequence[int],
    verb: str,
    *where: sa.ColumnElement[bool],
    now: Instant,
    **values: Any,
) -> Sequence[Any]:
    """Make a person's move of jobs that are in a state that allows it; returns these jobs."""
    sources, target, *_ = JOB_MOVES[verb]
    values = {"stopped_by": None, "stopped_why": None, **values}
    finished_at = None if target in JOB_ACTIVE else now.wall
    return conn.execute(
        sa.update(jobs)
        .where(j.id.in_(sorted(job_ids)), is_state(j.state, *sorted(sources)), *where)
        .values(state=target, finished_at=finished_at, **values)
        .returning(j.id, j.owner_id, j.exclusive_key, j.has_successors)
    ).all()


def lock(conn: sa.Connection, job_ids: Collection[int]) -> set[int]:
    """Lock jobs by id; returns those that it got.

    Jobs below one that the transaction already holds are not waited for.
    """
    if not dialect.has_row_locks(conn):
        return set(job_ids)
    highest = conn.info.get(_HIGHEST, 0)
    locked = dialect.try_lock_rows(conn, jobs, [i for i in job_ids if i <= highest])
    rest = [i for i in job_ids if i > highest]
    dialect.lock_rows(conn, jobs, rest)
    return note_locked(conn, {*locked, *rest})


def lock_all(conn: sa.Connection, job_ids: Collection[int]) -> None:
    """Lock jobs by id, or give the transaction up: then it starts over."""
    if not lock(conn, job_ids).issuperset(job_ids):
        raise TransactionConflict("database: the jobs are locked by another transaction")


def note_locked(conn: sa.Connection, job_ids: set[int]) -> set[int]:
    """Remember the highest job that the transaction holds; returns the jobs."""
    conn.info[_HIGHEST] = max(conn.info.get(_HIGHEST, 0), *job_ids, 0)
    return job_ids


def holds_jobs(conn: sa.Connection) -> bool:
    """Tell whether the transaction has locked a job."""
    return bool(conn.info.get(_HIGHEST))


def lock_inactive(conn: sa.Connection, job_ids: Sequence[int]) -> set[int]:
    """Lock jobs and return those that are no longer active."""
    states = lock_states(conn, job_ids)
    return {job_id for job_id, state in states.items() if state not in JOB_ACTIVE}


def lock_states(conn: sa.Connection, job_ids: Sequence[int]) -> dict[int, str]:
    """Lock jobs and return the state of each."""
    if not job_ids:
        return {}
    wanted = {"wanted": dialect.encode_ids(conn, sorted(job_ids))}
    states = dict(map(tuple, conn.execute(_states(conn), wanted).all()))
    note_locked(conn, set(states))
    return states


@dialect.statement
def _states(conn: sa.Connection) -> sa.Select[Any]:
    # Who had to wait for the lock is given the state that the other one left.
    return (
        sa.select(j.id, j.state)
        .where(dialect.id_in(conn, j.id, "wanted"))
        .order_by(j.id)
        .with_for_update(key_share=True)
    )


def start(
    conn: sa.Connection, claimed: Mapping[int, int], worker_id: str
) -> tuple[sa.Update, dict[str, str]]:
    """Return the statement that counts tasks of locked, active jobs as running, for a claim.

    It is `update_counters`, short. Its time is the parameter `wall`.
    """
    begun = dialect.encode_rows(sorted(claimed.items()))
    return _start(conn), {"begun": begun, "worker": worker_id}


@dialect.statement
def _start(conn: sa.Connection) -> sa.Update:
    begun = dialect.json_rows(conn, "begun", {"id": "int", "count": "int"})
    return starting(begun, sa.bindparam("wall", type_=sa.Double))


def starting(begun: sa.FromClause, wall: Any) -> sa.Update:
    """Build the UPDATE of `start`: `begun` has the id of each job and its count of tasks."""
    sources, target, *_ = JOB_MOVES["start"]
    b = begun
    return (
        sa.update(jobs)
        .where(j.id == b.c.id, has_state(j.state, *sorted(sources), target))
        .values(
            tasks_ready=j.tasks_ready - b.c.count,
            tasks_running=j.tasks_running + b.c.count,
            state=target,
            started_at=sa.func.coalesce(j.started_at, wall),
            worker_id=sa.bindparam("worker", type_=sa.Text),
        )
    )


def update_counters(
    conn: sa.Connection, deltas: Mapping[int, Delta], *, now: Instant, are_locked: bool = False
) -> list[Touched]:
    """Apply the changes and let each job's state follow; returns the jobs."""
    if not deltas:
        return []
    ids = sorted(deltas)
    if not are_locked:
        lock_all(conn, ids)
    changes = [deltas[job_id] for job_id in ids]
    # Only what changed is sent: most batches move tasks between two states and nothing else.
    places = tuple(at for at in POSITIONS.values() if any(d.moved[at] for d in changes))
    extras = tuple(name for name in _EXTRAS if any(getattr(d, name) for d in changes))
    values = [
        [i, *[d.moved[at] for at in places], *[getattr(d, name) for name in extras]]
        for i, d in zip(ids, changes, strict=True)
    ]
    found = conn.execute(
        _update(conn, places, extras), {"delta": dialect.encode_rows(values), "wall": now.wall}
    )
    return list(map(Touched._make, found.all()))


@dialect.statement
def _update(conn: sa.Connection, places: Sequence[int], extras: Sequence[str]) -> sa.Update:
    states = [state for state, at in POSITIONS.items() if at in places]
    d = dialect.json_rows(
        conn,
        "delta",
        {"id": "int", **{f"tasks_{s}": "int" for s in states}, **{n: _EXTRAS[n] for n in extras}},
    )
    return counting(conn, d, states, extras, sa.bindparam("wall", type_=sa.Double))


def counting(
    conn: sa.Connection | sa.Engine,
    d: sa.FromClause,
    states: Sequence[str],
    extras: Sequence[str],
    wall: Any,
) -> sa.Update:
    """Build the UPDATE of `update_counters`.

    `d` has the id of each job, what to add to its counters of `states`, and the `extras`.
    """
    after: dict[str, Any] = {s: j[f"tasks_{s}"] for s in POSITIONS}
    after.update({s: j[f"tasks_{s}"] + d.c[f"tasks_{s}"] for s in states})
    is_open = after["blocked"] + after["ready"] + after["running"] > 0
    is_active = is_state(j.state, *sorted(_COMPLETE.sources))
    ends = sa.and_(is_active, sa.not_(is_open), sa.not_(j.is_reviving))
    unsuccessful = after["failed"] + after["lost"] + after["cancelled"]
    succeeded = sa.and_(ends, unsuccessful == 0)
    done = j.cost_done + d.c.cost_done if "cost_done" in extras else j.cost_done
    total = j.cost_total + d.c.cost_total if "cost_total" in extras else j.cost_total
    fraction = sa.case(
        (j.is_growing, 0.0), (sa.or_(total <= 0, done > total), 1.0), else_=done / total
    )
    # A file that failed among others fails no job; see ADR 28.
    is_failed = sa.and_(
        after["failed"] + after["lost"] > 0, sa.not_(on_ended(conn).is_partly_done(j.id))
    )
    error = sa.func.coalesce(d.c.error, j.error) if "error" in extras else j.error
    values: dict[str, Any] = {f"tasks_{s}": after[s] for s in states}
    values.update(
        state=sa.case(
            (sa.not_(is_active), j.state),
            (sa.and_(is_open, after["running"] > 0), JOB_MOVES["start"].target),
            (sa.not_(ends), j.state),
            (is_failed, _FAIL.target),
            (sa.and_(unsuccessful > 0, unsuccessful == after["cancelled"]), _CANCEL.target),
            else_=_COMPLETE.target,
        ),
        progress=sa.case((succeeded, 1.0), else_=dialect.greatest(conn, j.progress, fraction)),
        error=sa.case((succeeded, sa.null()), else_=error),
        finished_at=sa.case((ends, wall), else_=j.finished_at),
    )
    for name in extras:
        if name in ("cost_done", "cost_total", "retry_count"):
            values[name] = j[name] + d.c[name]
        elif name == "result":
            values[name] = sa.func.coalesce(d.c[name], j[name])
    if "running" in states:
        first = sa.and_(j.started_at.is_(None), after["running"] > 0)
        values["started_at"] = sa.case((first, wall), else_=j.started_at)
    has_ended = (j.finished_at == wall).label("ended")
    return (
        sa.update(jobs)
        .where(j.id == d.c.id)
        .values(**values)
        .returning(j.id, j.state, has_ended, j.owner_id, j.exclusive_key, j.has_successors, j.error)
    )
