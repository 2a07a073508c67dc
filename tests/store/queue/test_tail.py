"""Events are read in the order of commits: each once, none left out, none of another tenant."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from quire.control import jobs as verbs
from quire.errors import BadInput
from quire.store.db.schema import queue as tables
from quire.store.queue import events, tail
from quire.store.queue.tail import Cursor
from tests import plans
from tests.store.stage import Stage
from tests.waiting import until


def record(conn: Any, stage: Stage, job_id: int | None, name: str, tenant: str | None = None):
    events.record(conn, [events.Event(job_id, name, tenant=tenant)], now=stage.now())


def others_have_ended(stage: Stage) -> bool:
    """Tell whether no transaction of another test is open: events wait for those, too."""
    if stage.db.path is not None:
        return True
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL "
        "AND datname IS DISTINCT FROM current_database()"
    )
    with stage.db.read() as conn:
        return not conn.exec_driver_sql(query).scalar_one()


def read(stage: Stage, cursor: Cursor, *tenants: str, **how: Any) -> list[tail.StreamedEvent]:
    until(lambda: others_have_ended(stage))
    with stage.db.read() as conn:
        return tail.read_after(conn, tenants or ("default",), cursor, **how)


def head(stage: Stage) -> Cursor:
    until(lambda: others_have_ended(stage))
    with stage.db.read() as conn:
        return tail.head(conn)


def names(found: list[tail.StreamedEvent]) -> list[str]:
    return [each.name for each in found]


def test_what_comes_after_a_cursor_is_read_once_and_in_order(stage: Stage):
    job_id = stage.one()
    at = head(stage)
    for n in range(3):
        with stage.db.begin() as conn:
            record(conn, stage, job_id, f"n{n}")
    found = read(stage, at)
    assert names(found) == ["n0", "n1", "n2"]
    assert names(read(stage, found[0].cursor)) == ["n1", "n2"]
    assert read(stage, found[-1].cursor) == []
    assert names(read(stage, at, until=found[1].cursor)) == ["n0", "n1"]
    assert names(read(stage, at, limit=1)) == ["n0"]


def test_transactions_that_commit_out_of_order_are_both_seen_once(pg_stage: Stage):
    job_id = pg_stage.one()
    at = head(pg_stage)
    seen: list[tail.StreamedEvent] = []

    def look() -> list[str]:
        found = read(pg_stage, seen[-1].cursor if seen else at)
        seen.extend(found)
        return names(found)

    with pg_stage.db.begin() as early:
        record(early, pg_stage, job_id, "drawn first, committed last")
        with pg_stage.db.begin() as late:
            record(late, pg_stage, job_id, "drawn last, committed first")
        # Committed, but an older transaction is open: what it writes would come before.
        assert look() == []
    assert look() == ["drawn first, committed last", "drawn last, committed first"]
    assert look() == []
    assert [each.cursor for each in seen] == sorted(each.cursor for each in seen)


def test_a_transaction_that_draws_its_ids_late_is_not_overtaken(pg_stage: Stage):
    """The older transaction writes its event after the younger one has committed."""
    job_id = pg_stage.one()
    at = head(pg_stage)
    with pg_stage.db.begin() as early:
        early.exec_driver_sql("SELECT pg_current_xact_id()")
        with pg_stage.db.begin() as late:
            record(late, pg_stage, job_id, "young")
        assert read(pg_stage, at) == []
        record(early, pg_stage, job_id, "old")
    found = read(pg_stage, at)
    assert names(found) == ["old", "young"]
    assert found[0].cursor.id > found[1].cursor.id  # by ids alone, "old" would have come last


def test_events_that_were_rolled_back_are_no_gap(stage: Stage):
    job_id = stage.one()
    at = head(stage)
    with pytest.raises(ZeroDivisionError), stage.db.begin() as conn:
        record(conn, stage, job_id, "never")
        raise ZeroDivisionError
    with stage.db.begin() as conn:
        record(conn, stage, job_id, "after")
    assert names(read(stage, at)) == ["after"]


def test_only_the_events_of_ones_own_tenants_are_read(stage: Stage):
    at = head(stage)
    mine, theirs = stage.one(), stage.submit(*[_noop()], tenant="other")[0]
    with stage.db.begin() as conn:
        record(conn, stage, mine, "mine")
        record(conn, stage, theirs, "theirs")
        record(conn, stage, None, "without a job", tenant="other")
        record(conn, stage, None, "nobody's")
    assert names(read(stage, at)) == ["mine"]
    assert names(read(stage, at, "other")) == ["theirs", "without a job"]
    assert {each.tenant for each in read(stage, at, "other", "default")} == {"default", "other"}
    assert names(read(stage, at, "other", job_id=theirs)) == ["theirs"]
    assert read(stage, at, "default", job_id=theirs) == []


def test_deleting_the_jobs_of_the_last_events_hides_nothing_that_follows(stage: Stage):
    job_id, other = stage.many(2)
    stage.run()
    at = head(stage)
    assert verbs.delete(stage.caller(), [job_id, other]) == [job_id, other]
    with stage.db.begin() as conn:
        record(conn, stage, None, "later", tenant="default")
    found = read(stage, at)
    assert names(found) == ["job.deleted", "later"]
    assert found[0].shape["jobs"] == [job_id, other]


def test_pruning_keeps_the_last_event_so_that_its_id_is_not_given_out_again(stage: Stage):
    stage.one()
    stage.run()
    verbs.delete(stage.caller(), [1])
    at = head(stage)
    stage.clock.advance(100)
    stage.db.write(lambda conn, now: events.prune(conn, before=now.wall, limit=100))
    with stage.db.begin() as conn:
        record(conn, stage, None, "later", tenant="default")
    assert names(read(stage, at)) == ["later"]


def restore_into_a_fresh_cluster(stage: Stage, ahead: int = 1 << 40) -> None:
    """As by pg_dump: rows keep the transaction ids of the old cluster, the new one counts anew."""
    with stage.db.begin() as conn:
        conn.exec_driver_sql(f"UPDATE events SET xid = xid + {ahead}")


def adopt(stage: Stage) -> None:
    with stage.db.begin() as conn:
        events.adopt_restored(conn)


def test_a_cursor_from_before_a_restore_goes_on_behind_its_event(pg_stage: Stage):
    stage, ahead = pg_stage, 1 << 40
    start = head(stage)
    for n in range(3):
        with stage.db.begin() as conn:
            record(conn, stage, None, f"n{n}", "default")
    before = [start, read(stage, start)[1].cursor, head(stage)]
    restore_into_a_fresh_cluster(stage, ahead)
    adopt(stage)
    with stage.db.begin() as conn:
        record(conn, stage, None, "later", "default")
    until(lambda: others_have_ended(stage))
    with stage.db.read() as conn:
        here = [tail.local(conn, Cursor(at.xid + ahead, at.id)) for at in before]
    unread = [["n0", "n1", "n2", "later"], ["n2", "later"], ["later"]]
    assert [names(read(stage, at)) for at in here] == unread
    with stage.db.read() as conn:
        assert tail.local(conn, head(stage)) <= head(stage)


@pytest.mark.parametrize("reached", ["neither", "the first", "both"])
def test_a_stream_that_was_behind_misses_nothing_after_a_restore(pg_stage: Stage, reached: str):
    """Whether or not the new cluster's transactions had reached its cursor or those behind it."""
    stage, ahead = pg_stage, 1 << 40
    start = head(stage)
    for name in ("read", "first", "second"):
        with stage.db.begin() as conn:
            record(conn, stage, None, name, "default")
    at = read(stage, start)[0].cursor
    with stage.db.begin() as conn:
        foreign = {"neither": 0, "the first": at.id + 1, "both": at.id + 2}[reached]
        conn.exec_driver_sql(f"UPDATE events SET xid = xid + {ahead} WHERE id > {foreign}")
    if reached == "neither":
        at = at._replace(xid=at.xid + ahead)
    adopt(stage)
    with stage.db.begin() as conn:
        record(conn, stage, None, "new", "default")
    until(lambda: others_have_ended(stage))
    with stage.db.read() as conn:
        here = tail.local(conn, at)
        assert not tail.has_restored(conn)
    assert names(read(stage, here)) == ["first", "second", "new"]
    # As soon as it has read them, it is told none of them again.
    [*_, last] = read(stage, here)
    adopt(stage)
    assert names(read(stage, last.cursor)) == []


def test_a_cursor_is_read_as_it_is_written():
    assert Cursor.parse(str(Cursor(12, 345))) == Cursor(12, 345)
    for text in ("", "12", "1-2-3", "-1-2", "a-b", "1" * 30 + "-1", "1-1\n"):
        with pytest.raises(BadInput, match="not a cursor"):
            Cursor.parse(text)


def test_the_pulse_changes_when_work_is_submitted_or_claimed(stage: Stage):
    def pulse(tenant: str = "default") -> tail.Activity:
        with stage.db.read() as conn:
            return tail.activity(conn, tenant)

    assert pulse() == pulse() == tail.Activity(0, ())
    job_id = stage.one()
    submitted = pulse()
    assert submitted.last_job_id == job_id
    [lease] = stage.claim()
    assert pulse().of_job(job_id) == ((job_id, lease.task_id, lease.fence),)
    assert pulse().of_job(job_id + 1) == ()
    assert pulse("other") == tail.Activity(0, ())


def test_events_are_found_by_an_index(stage: Stage):
    with stage.db.begin() as conn:
        many = [events.Event(None, "n", tenant="default") for _ in range(2000)]
        events.record(conn, many, now=stage.now())
        if stage.is_postgres:
            conn.exec_driver_sql("ANALYZE events")
        e = tables.events.c
        order = (e.xid, e.id) if stage.is_postgres else (e.id,)
        place: Any = sa.tuple_(*order) if stage.is_postgres else e.id
        edge = sa.tuple_(*map(sa.literal, (1 << 60, 0))) if stage.is_postgres else 1990
        query = sa.select(tables.events).where(place > edge).order_by(*order).limit(500)
        plan = plans.explain(conn, query, {})
    assert ("ix_events_order" if stage.is_postgres else "USING INTEGER PRIMARY KEY") in plan


def _noop() -> Any:
    from quire.model.records import Submission

    return Submission("noop")
