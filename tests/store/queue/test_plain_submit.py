"""The short path of a plain job stores what the general path would, or nothing at all."""

from __future__ import annotations

import functools
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from quire.control import jobs as verbs
from quire.errors import BadInput, Conflict, DatabaseUnavailable, Unconfirmed
from quire.model.records import Submission
from quire.store import open_database
from quire.store.db import direct_calls, group_commit, plain_submit, sqlite, urls
from quire.store.db.engine import Database
from quire.store.db.schema.queue import kinds
from quire.store.queue import submit as storing
from tests.store.stage import Stage
from tests.waiting import stays, until

_LAST = "SELECT max(id) FROM jobs"


def plain(kind: str = "noop", *, key: str = "k", user: str = "ada", **more: Any):
    given: dict[str, Any] = {
        "tenant": "default", "user": user, "kind": kind, "priority": 5, "cost": 1.0,
        "platform": None, "account": None, "max_attempts": None, "key": key, "body_hash": "h",
        "by_person": True, "origin": "local", "payloads": ["{}"],
    }  # fmt: skip
    return plain_submit.PlainJobs(**{**given, **more})


def contents(stage: Stage, job_id: int) -> list[dict[str, Any]]:
    """The rows of a job without their ids."""
    rows = [stage.job(job_id), stage.task(job_id)]
    return [
        {k: v for k, v in row._mapping.items() if k not in ("id", "job_id", "fair_tag")}
        for row in rows
    ]


@pytest.mark.parametrize(
    "submission",
    [
        Submission("noop"),
        Submission("slow", {"page": 7, "text": "ä\\"}, priority=2, cost=2.5),
        Submission("noop", platform="drive", account="a1", max_attempts=9),
        Submission("once", max_attempts=4),
    ],
    ids=["default", "queue-priority-cost", "account-attempts", "at-most-once"],
)
def test_both_paths_store_the_same(stage: Stage, submission: Submission):
    stage.many(1)  # the owner exists
    short = [*stage.submit(submission), *stage.submit(submission, submission)]
    general = generally(stage, submission, submission)
    rows = [contents(stage, job_id) for job_id in (*short, *general)]
    assert rows == [rows[0]] * 5
    step = submission.cost
    tags = [stage.task(job_id).fair_tag for job_id in (*short, *general)]
    assert tags == [pytest.approx(tags[0] + n * step) for n in range(5)]


def generally(stage: Stage, *submissions: Submission) -> list[int]:
    """Submit by the general path: it alone can do something more in the same transaction."""
    return verbs.submit(stage.caller(), submissions, then=lambda conn, ids, now: None)


def test_many_jobs_that_are_alike_are_stored_by_one_call(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    stage.one()
    monkeypatch.setattr(storing, "insert", None)  # the general path
    payloads = [{"n": n, "text": 'line\nbreak \\ "quoted" ä €'} for n in range(500)]
    ids = stage.submit(*[Submission("noop", payload) for payload in payloads])
    assert ids == sorted(set(ids)) and len(ids) == 500
    assert [json.loads(stage.job(job_id).payload) for job_id in ids] == payloads
    assert [row.job_id for row in stage.rows("tasks")[1:]] == ids
    stage.inspect()


@pytest.mark.parametrize("kind", ["noop\0", "noop\0more", "\ud800"])
def test_a_kind_that_cannot_be_a_name_is_refused_and_not_cut(stage: Stage, kind: str):
    stage.one()
    with pytest.raises(BadInput, match="kind: "):
        stage.one(kind)
    if kind.isascii():
        assert plain_submit.submit(stage.db, plain(kind)) is None
    assert stage.count("jobs") == 1


def test_texts_are_the_same_on_both_paths_whatever_the_encoding_of_the_environment(
    pg_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with closing(open_database(pg_url)) as db:
        stage = Stage(db)
        stage.one()
        submission = Submission("noop", platform="Büro")
        for key, submit in (("ä", stage.submit), ("ö", functools.partial(generally, stage))):
            [job_id] = submit(submission)
            assert stage.job(job_id).platform == "Büro"
            assert plain_submit.submit(db, plain(key=key)) is not None
        assert {row.key for row in stage.rows("submissions")} >= {"ä", "ö"}


def test_many_jobs_with_one_key_are_stored_once(stage: Stage):
    stage.one()
    submissions = [Submission("noop", {"n": n}) for n in range(3)]
    ids = verbs.submit(stage.caller(), submissions, key="k")
    assert verbs.submit(stage.caller(), submissions, key="k") == ids
    with pytest.raises(Conflict):
        verbs.submit(stage.caller(), submissions[:2], key="k")
    assert stage.count("jobs") == 4


@pytest.mark.parametrize(
    "odd", [{"priority": 3}, {"kind": "slow"}, {"cost": 2.0}, {"platform": "drive"}]
)
def test_jobs_that_differ_keep_what_they_differ_in(stage: Stage, odd: dict[str, Any]):
    stage.one()
    ids = stage.submit(Submission("noop"), replace(Submission("noop"), **odd), Submission("noop"))
    [(name, value)] = odd.items()
    column = {"cost": "cost_total"}.get(name, name)
    usual, found, last = (getattr(stage.job(job_id), column) for job_id in ids)
    assert found == value and usual == last != value


def test_each_of_many_jobs_is_checked(stage: Stage):
    stage.one()
    odd: Any
    for odd in (True, 1.0, 11):
        with pytest.raises(BadInput, match="priority"):
            stage.submit(Submission("noop", priority=1), Submission("noop", priority=odd))
    with pytest.raises(BadInput, match="payload"):
        stage.submit(Submission("noop"), Submission("noop", {"x": object()}))
    assert stage.count("jobs") == 1


def test_payloads_too_large_for_one_call_are_left_to_the_general_path(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    stage.one()
    monkeypatch.setattr(plain_submit, "MOST_BYTES", 1_000)
    assert plain_submit.submit(stage.db, plain(payloads=['"%s"' % ("x" * 300)] * 4)) is None
    assert len(stage.submit(*[Submission("noop", {"x": "y" * 300})] * 4)) == 4


def test_a_job_that_is_not_plain_is_left_to_the_general_path(stage: Stage):
    assert plain_submit.submit(stage.db, plain()) is None  # no owner yet
    stage.one()
    stage.set_owner("strict", policy="reject")
    verbs.pause(stage.caller(), "other")
    with stage.db.begin() as conn:
        conn.execute(sa.update(kinds).where(kinds.c.name == "slow").values(is_internal=True))
    before = stage.count("jobs"), stage.count("submissions")
    assert plain_submit.submit(stage.db, plain("unheard")) is None
    assert plain_submit.submit(stage.db, plain("slow", origin="api")) is None
    assert plain_submit.submit(stage.db, plain("other")) is None
    assert plain_submit.submit(stage.db, plain(user="strict")) is None
    assert before == (stage.count("jobs"), stage.count("submissions"))
    assert plain_submit.submit(stage.db, plain(user="strict", by_person=False)) is not None
    assert stage.task(stage.one("other")).reason == "paused"


@pytest.mark.parametrize("wish", [{"after": (1,)}, {"run_at": 4e9}, {}], ids=str)
def test_a_job_that_has_to_wait_is_left_to_the_general_path(stage: Stage, wish: dict[str, Any]):
    first = stage.one(policy="queue")
    assert first == 1
    waiting = stage.one(policy="all" if wish else "queue", **wish)
    reasons = {"after": "after", "run_at": "due"}
    assert stage.task(waiting).reason == reasons.get(next(iter(wish), ""), "user_busy")


def test_what_belongs_to_a_job_is_written_with_it(stage: Stage):
    stage.one()
    written: list[list[int]] = []
    ids = verbs.submit(
        stage.caller(), [Submission("noop")], then=lambda conn, ids, now: written.append(ids)
    )
    assert written == [ids]


def test_calls_share_a_few_connections(pg_stage: Stage):
    stage = pg_stage
    stage.one()
    asking = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    url = urls.plain_url(stage.db.engine)
    with (
        psycopg.connect(url, autocommit=True) as watcher,
        psycopg.connect(url) as holder,
        ThreadPoolExecutor(8) as pool,
    ):

        def are_waiting() -> bool:
            return watcher.execute(asking).fetchone() == (direct_calls.MOST,)

        holder.execute("LOCK TABLE submissions IN EXCLUSIVE MODE")
        made = [pool.submit(plain_submit.submit, stage.db, plain(key=str(n))) for n in range(8)]
        until(are_waiting)
        is_all = stays(are_waiting, during=0.3)
        holder.rollback()
        assert is_all and all(each.result() for each in made)


def test_a_known_key_is_left_to_the_general_path(stage: Stage):
    stage.one()
    job_id = plain_submit.submit(stage.db, plain(key="k1"))
    assert job_id is not None
    assert plain_submit.submit(stage.db, plain(key="k1")) is None
    assert stage.count("jobs") == 2


def test_one_key_of_many_threads_makes_one_job(stage: Stage):
    stage.one()
    with ThreadPoolExecutor(8) as pool:
        made = [
            pool.submit(verbs.submit, stage.caller(), [Submission("noop")], key="same")
            for _ in range(16)
        ]
    assert len({tuple(each.result()) for each in made}) == 1
    assert stage.count("jobs") == 2


def test_threads_that_wait_for_their_turn_share_one_commit(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    stage, gate = sqlite_stage, threading.Event()
    group = stage.db._group
    assert group is not None
    begun: list[object] = []
    lock = sqlite.lock
    stage.one()

    def count(*given: Any) -> None:
        begun.append(given)
        lock(*given)

    monkeypatch.setattr(sqlite, "lock", count)
    inserted = plain_submit._insert

    def insert(*given: Any) -> list[int] | None:
        gate.wait(30)
        return inserted(*given)

    monkeypatch.setattr(plain_submit, "_insert", insert)
    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(stage.one) for _ in range(8)]
        until(lambda: len(group._waiting) == 7)  # the first one is at its insert
        gate.set()
    assert len({each.result() for each in made}) == 8
    assert len(begun) == 2


def test_a_job_is_on_disk_when_submit_returns_and_others_may_write_before(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    stage, flushed = sqlite_stage, []
    stage.one()

    def flush(log: int) -> None:
        with closing(sqlite.sqlite_module().connect(stage.db.path, timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")
            flushed.append((os.fstat(log).st_ino, other.execute(_LAST).fetchone()[0]))

    monkeypatch.setattr(group_commit, "_flush", flush)
    ids = [stage.one() for _ in range(3)]
    log = Path(f"{stage.db.path}-wal").stat().st_ino
    assert flushed == [(log, job_id) for job_id in ids]


def test_threads_share_one_flush(sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch):
    stage, gate, flushed = sqlite_stage, threading.Event(), []
    stage.one()

    def flush(log: int) -> None:
        flushed.append(log)
        gate.wait(30)

    monkeypatch.setattr(group_commit, "_flush", flush)
    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(stage.one)]
        until(lambda: bool(flushed))
        made += [pool.submit(stage.one) for _ in range(7)]
        until(lambda: stage.count("jobs") == 9)  # committed during the first flush
        gate.set()
        assert len({each.result() for each in made}) == 8
    assert len(flushed) == 2


def test_a_disk_that_fails_is_told_and_later_flushes_are_left_to_sqlite(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    stage, flushed = sqlite_stage, []
    stage.one()

    def fail(log: int) -> None:
        flushed.append(log)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(group_commit, "_flush", fail)
    with pytest.raises(Unconfirmed, match="disk failed"):
        stage.one()
    assert stage.one() and stage.count("jobs") == 3 and len(flushed) == 1
    group = stage.db._group
    assert group is not None
    assert group._cursor.execute("PRAGMA synchronous").fetchone() == (2,)


def test_without_flushes_by_setting_none_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(group_commit, "_flush", None)
    db = open_database(f"sqlite:///{tmp_path / 'quire.db'}", synchronous="normal")
    with closing(db):
        db.migrate()
        stage = Stage(db)
        assert len({stage.one() for _ in range(3)}) == 3


def test_a_failed_commit_is_told_to_every_thread_that_shared_it(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    stage = sqlite_stage
    stage.one()

    def fail(db: Database, cursor: Any, new: Any) -> list[int] | None:
        raise DatabaseUnavailable("database: the disk is full.")

    monkeypatch.setattr(plain_submit, "_insert", fail)
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(stage.one) for _ in range(4)]
    assert all(isinstance(each.exception(), DatabaseUnavailable) for each in made)
    assert stage.count("jobs") == 1


def test_a_job_that_fails_does_not_fail_those_that_shared_its_transaction(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    stage, gate = sqlite_stage, threading.Event()
    group = stage.db._group
    assert group is not None
    stage.one()
    inserted = plain_submit._insert

    def insert(db: Database, cursor: Any, new: Any) -> list[int] | None:
        gate.wait(30)
        made = inserted(db, cursor, new)
        if new.platform == "bad":
            raise ValueError("bad")
        return made

    monkeypatch.setattr(plain_submit, "_insert", insert)
    platforms = [None, "bad", None, None, "bad", None]
    with ThreadPoolExecutor(6) as pool:
        made = [pool.submit(stage.submit, Submission("noop", platform=p)) for p in platforms]
        until(lambda: len(group._waiting) == 5)
        gate.set()
    failed = [isinstance(each.exception(), ValueError) for each in made]
    assert failed == [platform == "bad" for platform in platforms]
    assert stage.count("jobs") == 5


def test_a_lost_connection_is_followed_by_the_general_path(
    pg_stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    """The function has committed, but its answer is lost: the key keeps it at one job."""
    pg_stage.one()
    called = Database.call

    def lose(self: Database, text: str, values: Any) -> Any:
        assert called(self, text, values) is not None

    monkeypatch.setattr(Database, "call", lose)
    job_id = pg_stage.one()
    assert pg_stage.count("jobs") == 2
    assert pg_stage.job(job_id).state == "pending"


def test_a_killed_session_is_followed_by_the_general_path(pg_stage: Stage):
    pg_stage.one()
    pg_stage.one()  # by the procedure: its connection stays open
    with psycopg.connect(urls.plain_url(pg_stage.db.engine), autocommit=True) as killer:
        killer.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert pg_stage.one()
    assert pg_stage.count("jobs") == 3


def test_workers_are_notified_once_the_job_is_there(pg_stage: Stage):
    pg_stage.one()
    with psycopg.connect(urls.plain_url(pg_stage.db.engine), autocommit=True) as listener:
        listener.execute("LISTEN quire")
        job_id = pg_stage.one()
        assert [n.channel for n in listener.notifies(timeout=30, stop_after=1)] == ["quire"]
        assert listener.execute("SELECT max(id) FROM jobs").fetchone() == (job_id,)


def test_connections_of_calls_are_closed_and_opened_again(pg_stage: Stage):
    first = [pg_stage.one() for _ in range(3)]
    pg_stage.db.close()
    assert pg_stage.one() > first[-1]
