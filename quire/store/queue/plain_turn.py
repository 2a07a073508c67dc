"""Ends plain runs and claims plain tasks by one statement each, on PostgreSQL.

`settle` and `claim` take some twelve round trips, for they handle whatever can happen. Most runs
end well and nothing waits for their tasks; most tasks may run at once. Each of the two statements
here is built of the same moves, finds out in the database what is plain, and leaves the rest as it
is. A claim alone is one round trip, which is also its transaction.
"""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import FakeClock
from quire.model.outcomes import Key, Outcome, Settlement
from quire.model.states import JOB_ACTIVE, TASK_MOVES, TaskState
from quire.store.db import dialect
from quire.store.db.direct_calls import Call
from quire.store.db.engine import Database
from quire.store.db.schema.queue import (
    attempts,
    events,
    has_state,
    is_state,
    jobs,
    kinds,
    owners,
    tasks,
)
from quire.store.queue import claim, job_transition, release, transition

j, t = jobs.c, tasks.c
#: What is told of each run that ended: names of columns of `attempts`, but for `id` and `result`.
_RUN = {
    "id": "int", "fence": "int", "began_at": "float", "duration": "float", "peak_rss": "int",
    "result": "text",
}  # fmt: skip


class Wanted(NamedTuple):
    """What a worker wants to claim: up to `room` tasks of the `known` kinds, queue by queue."""

    queues: Sequence[str]
    known: Collection[str]
    room: int
    ttl: float


class Turn(NamedTuple):
    """What was ended and claimed."""

    #: The runs that ended; the others have to be settled.
    ended: set[Key]
    claimed: list[claim.Claimed]
    #: Some task at the head of a queue is not plain, or locked: it is left to `claim`.
    is_left: bool
    #: A statement failed: what it did may have been committed.
    has_failed: bool
    #: When the next blocked task is due; None if there is none, or nothing was to be claimed.
    next_due_at: float | None
    #: The time of the database; None if it was not asked.
    at: float | None


def applies(db: Database) -> bool:
    """Tell whether turns can be taken here: SQLite has no round trips to save."""
    return db.has_calls


def may_end(run: Settlement) -> bool:
    """Tell whether a run may be ended by `take`; whether its task is plain shows there."""
    return run.move == "finish" and run.outcome == Outcome.DONE and run.error is None


def take(db: Database, worker_id: str, runs: Sequence[Settlement], wanted: Wanted | None) -> Turn:
    """End runs, then claim tasks; a claim that fails may follow ends that were committed."""
    own = {"worker": worker_id, "at": db.clock.now().wall if _is_fake(db) else None}
    claims = wanted is not None and wanted.room > 0
    turn = Turn(set(), [], False, False, None, None)
    answers: list[list[Any]] = []
    if runs:
        both = [_ending(db, sorted(runs), own)]
        if wanted is not None and claims:
            both.append(_claiming(db, wanted.queues[0], wanted, own))
        found = db.transact(both, _has_counted_all)
        if found is None:
            return turn._replace(has_failed=True, is_left=claims)
        [(ids, fences, _, _, at)], *answers = found
        turn = turn._replace(ended=set(zip(ids or (), fences or (), strict=True)), at=at)
    if wanted is None or not claims:
        return turn
    return _claim(db, turn, wanted, own, answers)


def _claim(
    db: Database,
    turn: Turn,
    wanted: Wanted,
    own: Mapping[str, Any],
    answers: list[list[Any]],
) -> Turn:
    """Claim from one queue after the other; the answer of the first may be known."""
    for queue in wanted.queues:
        rows = answers.pop() if answers else db.call_rows(_claiming(db, queue, wanted, own))
        if rows is None:
            return turn._replace(has_failed=True, is_left=True)
        turn = _with_claimed(turn, queue, rows)
        wanted = wanted._replace(room=wanted.room - len(turn.claimed[-1].rows))
        if turn.is_left or wanted.room <= 0:
            break
    return turn


def _is_fake(db: Database) -> bool:
    return isinstance(db.clock, FakeClock)


def _has_counted_all(found: list[list[Any]]) -> bool:
    """Tell whether every run was counted: not if a job was stopped after the statement began."""
    [(_, _, touched, counted, _)] = found[0]
    return bool(touched == counted)


def _with_claimed(turn: Turn, queue: str, rows: list[Any]) -> Turn:
    at, due_at, is_plain, is_contended, *_ = rows[0]
    taken = [claim.Ready._make(row[4:]) for row in rows if row[4] is not None]
    is_left = not is_plain or (is_contended and not taken)
    part = claim.Claimed(taken, queue, at, is_contended)
    return turn._replace(
        claimed=[*turn.claimed, part], is_left=is_left, next_due_at=due_at, at=turn.at or at
    )


def _ending(db: Database, runs: Sequence[Settlement], own: Mapping[str, Any]) -> Call:
    text, fixed = _end_statement(db.engine)
    columns = zip(
        *((e.task_id, e.fence, e.began_at, e.duration, e.peak_rss, e.result) for e in runs),
        strict=True,
    )
    told = {f"run_{n}": dialect.encode_array(c) for n, c in zip(_RUN, columns, strict=True)}
    return text, {**fixed, **own, **told}


def _claiming(db: Database, queue: str, wanted: Wanted, own: Mapping[str, Any]) -> Call:
    text, fixed = _claim_statement(db.engine)
    known = dialect.encode_array(sorted(wanted.known))
    of = {"queue": queue, "limit": wanted.room, "ttl": wanted.ttl, "known": known}
    return text, {**fixed, **own, **of}


@functools.cache
def _end_statement(engine: sa.Engine) -> tuple[str, dict[str, Any]]:
    """Build the statement that ends runs: tasks, history, counters of jobs, events.

    The lock order is that of `settle`: the tasks first, then the jobs by id.
    """
    at = dialect.server_time("at")
    run = dialect.array_rows("run", _RUN)
    source, target = TaskState.RUNNING, TASK_MOVES["finish"].target
    is_plain = (
        has_state(j.state, *JOB_ACTIVE), j.exclusive_key.is_(None), sa.not_(j.has_successors),
        j.tasks_failed + j.tasks_lost + j.tasks_cancelled == 0,
    )  # fmt: skip
    ended = (
        transition.moving("finish", source, at, result=run.c.result)
        .where(
            *(t.id == run.c.id, t.fence == run.c.fence),
            *(sa.not_(t.has_successors), t.document_id.is_(None)),
            *(j.id == t.job_id, *is_plain),
        )
        .returning(
            *(t.id, t.fence, t.job_id, t.attempt, t.cost, t.parent_id, t.begin_at),
            *(run.c.began_at.label("began"), run.c.duration, run.c.peak_rss, run.c.result),
        )
        .cte("ended")
    )
    e = ended.c
    count = sa.func.count()
    result = sa.func.max(e.result).filter(e.parent_id.is_(None)).label("result")
    delta = (
        sa.select(
            *(e.job_id.label("id"), (-count).label("tasks_running"), count.label("tasks_done")),
            *(sa.func.sum(e.cost).label("cost_done"), result),
        )
        .group_by(e.job_id)
        .order_by(e.job_id)
        .subquery("delta")
    )
    counting = job_transition.counting(engine, delta, (source, target), ("cost_done", "result"), at)
    counted = counting.where(*is_plain).cte("counted")
    history = sa.insert(attempts).from_select(
        ["task_id", "fence", "attempt", "worker_id", "began_at", "finished_at", "duration",
         "outcome", "peak_rss"],
        sa.select(e.id, e.fence, e.attempt, sa.bindparam("worker", type_=sa.Text),
                  sa.func.coalesce(e.began, e.begin_at), at, e.duration,
                  sa.literal(Outcome.DONE.value), e.peak_rss),
    )  # fmt: skip
    c = counted.c
    told = sa.insert(events).from_select(
        ["at", "job_id", "name"], sa.select(at, c.id, "job." + c.state).where(c.ended)
    )
    touched = sa.select(sa.func.count(e.job_id.distinct())).scalar_subquery()
    statement = sa.select(
        *(sa.select(sa.func.array_agg(c)).scalar_subquery() for c in (e.id, e.fence)),
        touched,
        sa.select(sa.func.count()).select_from(counted).scalar_subquery(),
        at,
    ).add_cte(history.cte("history"), told.cte("told"))
    return _compiled(engine, statement, given_back=0, crashed=0)


@functools.cache
def _claim_statement(engine: sa.Engine) -> tuple[str, dict[str, Any]]:
    """Build the statement that claims the head of a queue, if all of it is plain.

    It waits for no lock. Jobs are locked one by one: a join of two lists would be planned for
    lists of any length.
    """
    at = dialect.server_time("at")
    head = claim.HEAD.with_for_update(skip_locked=True, of=tasks).cte("head")
    own = [j[name] for name in ("state", "payload", "exclusive_key", "origin")]
    free = (
        sa.select(*own)
        .where(j.id == head.c.job_id)
        .with_for_update(key_share=True, skip_locked=True)
        .lateral("free")
    )
    h, f = head.c, free.c
    running = tasks.alias("running").c
    is_held = sa.exists().where(
        running.exclusive_key == h.exclusive_key, is_state(running.state, TaskState.RUNNING)
    )
    is_paused = sa.exists().where(kinds.c.name == h.kind, kinds.c.paused_at.is_not(None))
    known = sa.cast(sa.bindparam("known", type_=sa.types.NULLTYPE), sa.ARRAY(sa.Text))
    is_plain = sa.and_(
        *(is_state(f["state"], *JOB_ACTIVE), f.exclusive_key.is_(None)),
        *(h.kind == sa.any_(known), sa.not_(is_paused)),
        *(h.crashes == 0, sa.not_(h.at_most_once)),
        *(sa.or_(h.exclusive_key.is_(None), sa.not_(is_held)),),
    )
    rows = (
        sa.select(*claim.columns(h, f), is_plain.label("is_plain"))
        .join_from(head, free, sa.true(), isouter=True)
        .cte("rows")
    )
    r = rows.c
    is_capped = sa.exists().where(owners.c.max_running.is_not(None))
    all_plain = sa.select(
        sa.and_(
            sa.not_(is_capped),
            sa.func.coalesce(sa.func.bool_and(r.is_plain).filter(r.state.is_not(None)), sa.true()),
        )
    ).scalar_subquery()
    worker = sa.bindparam("worker", type_=sa.Text)
    expires_at = at + sa.bindparam("ttl", type_=sa.Double)
    taken = (
        transition.moving("claim", TaskState.READY, at, worker_id=worker, expires_at=expires_at)
        .where(t.id == r.id, r.state.is_not(None), all_plain)
        .returning(*r)
        .cte("taken")
    )
    begun = (
        sa.select(taken.c.job_id.label("id"), sa.func.count().label("count"))
        .group_by(taken.c.job_id)
        .subquery("begun")
    )
    started = job_transition.starting(begun, at).cte("started")
    contended = sa.select(sa.func.count() > 0).where(r.state.is_(None)).scalar_subquery()
    one = sa.select(sa.literal(1).label("one")).subquery("one")
    k = taken.c
    statement = (
        sa.select(
            at, release.NEXT_DUE.scalar_subquery(), all_plain, contended,
            *(column for column in k if column.name != "is_plain"),
        )
        .join_from(one, taken, sa.true(), isouter=True)
        .order_by(k.priority, k.fair_tag, k.id)
        .add_cte(started)
    )  # fmt: skip
    return _compiled(engine, statement)


def _compiled(
    engine: sa.Engine, statement: sa.Select[Any], **given: Any
) -> tuple[str, dict[str, Any]]:
    """Compile a statement for the driver; returns its text and the parameters with a value."""
    compiled = statement.compile(dialect=engine.dialect)
    return str(compiled), {**compiled.params, **given}
