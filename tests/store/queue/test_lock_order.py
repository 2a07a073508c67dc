"""One lock order: no pair of verbs deadlocks, and nobody waits for a handler's transaction."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from quire.control import doctor
from quire.control import documents as document_verbs
from quire.control import jobs as verbs
from quire.errors import Conflict, DatabaseUnavailable, LeaseLost, NotFound, Overtaken, UserBusy
from quire.model.contracts import JobKind
from quire.model.outcomes import Lease
from quire.model.records import About, Submission
from quire.runtime.child.main import judge
from quire.store.db.schema.documents import documents
from quire.store.documents import admission, corpora, generations
from quire.store.queue import (
    aging,
    claim,
    dependencies,
    fenced,
    job_actions,
    kinds,
    owners,
    plain_turn,
    progress,
    release,
    settle,
    transition,
)
from tests.store.stage import KINDS, TTL, Stage, ending
from tests.waiting import until

#: What a verb may answer when another one was faster.
EXPECTED = (LeaseLost, Conflict, NotFound, Overtaken, UserBusy)
CONFLICTS = ("40P01", "40001")
SECONDS_PER_PAIR = 0.02
DOCUMENTS = 6


class World:
    """A few busy jobs of one user, and every verb as a function that picks some of them."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.db = stage, stage.db
        self.known = {
            **KINDS,
            "ingest": JobKind("ingest", KINDS["noop"].function),
            "ingest.document": JobKind("ingest.document", KINDS["noop"].function),
        }
        self.leases: list[Lease] = []
        self.conflicts: list[str] = []
        with self.db.begin() as conn:
            kinds.announce(conn, self.known.values())
        sa.event.listen(self.db.engine, "handle_error", self._note)

    def _note(self, context: Any) -> None:
        if getattr(context.original_exception, "sqlstate", None) in CONFLICTS:
            self.conflicts.append(f"{context.statement}: {context.original_exception}")

    def jobs(self, *states: str) -> list[int]:
        rows = [row.id for row in self.stage.rows("jobs") if row.state in states or not states]
        return sorted(random.sample(rows[-12:], min(3, len(rows[-12:]))))

    def caller(self, policy: str = "all") -> Any:
        return replace(self.stage.caller(policy=policy), known=lambda: self.known)

    def submit(self) -> None:
        payloads = {"noop": {}, "ingest": {"sources": ["https://example.com/a"]}}
        wishes = [Submission(*random.choice(list(payloads.items()))) for _ in range(3)]
        verbs.submit(self.caller(random.choice(("all", "all", "queue", "replace"))), wishes)

    def submit_after(self) -> None:
        verbs.submit(self.caller("queue"), [Submission("noop", after=self.jobs())])

    def claim(self) -> None:
        claimed = self.db.write(partial(self._claim, worker=random.choice(("w1", "dead"))))
        self.leases += claimed

    def _claim(self, conn: sa.Connection, now: Any, worker: str = "w1") -> list[Lease]:
        return claim.claim_rows(
            conn, worker, "default", self.known, now=now, ttl=TTL, limit=4
        ).leases()

    def turn(self) -> None:
        """Settle, report and claim in one transaction, as a worker does."""
        mine, told = [self._take() for _ in range(2)], list(self.leases[:3])
        how = random.choice((("finish", "done"), ("return", "returned")))
        ended = [ending(x, *how) for x in mine if x]

        def act(conn: sa.Connection, now: Any) -> list[Lease]:
            settle.settle(conn, ended, now=now)
            progress.report(conn, [(*lease.key, 0.5, "half") for lease in told], now=now)
            release.release_due(conn, now=now)
            return self._claim(conn, now)

        self.leases += self.db.write(act)

    def plain_turn(self) -> None:
        ended = [ending(x) for x in [self._take() for _ in range(3)] if x]
        wanted = plain_turn.Wanted(("default",), self.known, 4, TTL)
        turn = plain_turn.take(self.db, "w1", ended, wanted)
        self.leases += [lease for part in turn.claimed for lease in part.leases()]

    def _take(self) -> Lease | None:
        try:
            return self.leases.pop(random.randrange(len(self.leases)))
        except (IndexError, ValueError):
            return None

    def fail(self) -> None:
        if lease := self._take():
            self.stage.settle(ending(lease, "fail", "failed", error="no"))

    def end(self) -> None:
        """Run a task to its end, by a transaction of its handler."""
        if (lease := self._take()) is None:
            return
        with fenced.ending(self.db, *lease.key, worker_id="w1") as tx:
            if lease.kind == "ingest":
                self._list(tx, lease.job_id)
            elif lease.kind == "ingest.document":
                self._index(tx, lease)
            else:
                before = tx.spawn("noop")
                tx.spawn("noop", after=[before])

    def _list(self, tx: fenced.Transaction, job_id: int) -> None:
        owner = owners.by_id(tx.connection, tx.owner_id)
        request = admission.AdmissionRequest(owner, job_id, "folder", "{}", is_forced=True)
        items = [
            admission.ListedFile(f"folder/{n}", str(n), str(time.monotonic_ns()))
            for n in random.sample(range(DOCUMENTS), 3)
        ]
        for one in admission.admit(tx.connection, request, items, now=tx.now):
            if one.should_index:
                key = f"document {one.document_id}"
                about = About(one.document_id, one.generation, exclusive_key=key)
                tx.spawn("ingest.document", about=about)

    def _index(self, tx: fenced.Transaction, lease: Lease) -> None:
        [task] = self.stage.rows("tasks", id=lease.task_id)
        build = generations.start(tx.connection, lease.task_id, task.document_id, now=tx.now)
        generations.swap(tx.connection, build.document_id, build.generation, now=tx.now)

    def write(self) -> None:
        for lease in self.leases[:1]:
            fenced.write(self.db, *lease.key, lambda tx: tx.spawn("noop"))

    def report(self) -> None:
        for lease in self.leases[:4]:
            self.stage.report(lease, 0.5, "half")

    def renew(self) -> None:
        self.stage.renew(*self.leases[:4])

    def reap(self) -> None:
        self.stage.reap("dead")

    def stop(self) -> None:
        verbs.stop(self.caller(), self.jobs("pending", "running"))

    def resume(self) -> None:
        verbs.resume(self.caller("replace"), self.jobs("stopped", "failed"))

    def cancel(self) -> None:
        verbs.cancel(self.caller(), self.jobs("pending", "running", "stopped"))

    def retry(self) -> None:
        verbs.retry(self.caller(), self.jobs("failed", "cancelled"))

    def delete(self) -> None:
        verbs.delete(self.caller(), self.jobs("completed", "cancelled", "stopped"))

    def reprioritise(self) -> None:
        verbs.reprioritise(self.caller(), self.jobs(), random.randint(1, 10))

    def sweep(self) -> None:
        for act in (
            job_actions.revoke_strays,
            job_actions.sweep_halted,
            transition.satisfy_late,
            release.release_stuck,
            partial(release.release_overlooked, known=list(self.known)),
            partial(aging.promote, after=-1.0),
        ):
            self.db.write(lambda conn, now, act=act: act(conn, now=now))  # type: ignore[misc]
        if unfinished := self.db.write(lambda conn, now: job_actions.unfinished(conn)):
            self.db.write(lambda conn, now: job_actions.finish(conn, unfinished, now=now))

    def _documents(self) -> list[int]:
        with self.db.read() as conn:
            return list(conn.scalars(sa.select(documents.c.id)))

    def reindex(self) -> None:
        if known := self._documents():
            document_verbs.reindex(self.caller("queue"), random.choice(known), {}, force=True)

    def delete_document(self) -> None:
        if known := self._documents():
            ids = [random.choice(known)]
            self.db.write(lambda conn, now: corpora.delete_documents(conn, "default", ids, now=now))

    def verbs(self) -> list[Callable[[], None]]:
        return [
            self.submit, self.submit_after, self.claim, self.turn, self.plain_turn, self.fail,
            self.end, self.write,
            self.report, self.renew, self.reap, self.stop, self.resume, self.cancel, self.retry,
            self.delete, self.reprioritise, self.sweep, self.reindex, self.delete_document,
        ]  # fmt: skip


def repeat(verb: Callable[[], None], until: float) -> None:
    while time.monotonic() < until:
        with suppress(*EXPECTED):
            verb()


def test_no_pair_of_verbs_deadlocks(pg_stage: Stage):
    world = World(pg_stage)
    pg_stage.set_owner("ada", max_running=30)
    for act in (world.submit, world.claim, world.end, world.submit, world.claim):
        act()
    with ThreadPoolExecutor(3) as pool:
        for pair in itertools.combinations_with_replacement(world.verbs(), 2):
            until = time.monotonic() + SECONDS_PER_PAIR
            # Beside each pair, what a worker does all the time.
            for each in [pool.submit(repeat, verb, until) for verb in (*pair, world.turn)]:
                each.result()
            if len(pg_stage.rows("jobs")) > 60:
                verbs.cancel(world.caller(), [row.id for row in pg_stage.rows("jobs")])
                verbs.delete(world.caller(), [row.id for row in pg_stage.rows("jobs")])
                world.leases.clear()
                world.submit()
    for _ in range(5):
        world.sweep()
    assert world.conflicts == []
    pg_stage.db.close()  # a session tells its statistics when it ends
    with pg_stage.db.read() as conn:
        query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        assert conn.exec_driver_sql(query).scalar_one() == 0


@contextmanager
def inside_a_handlers_transaction(stage: Stage, lease: Lease) -> Iterator[None]:
    """Hold a task as its handler does, until the block ends; then the lease must be lost or not."""
    with fenced.ending(stage.db, *lease.key, worker_id="w1") as tx:
        tx.execute("INSERT INTO meta (key, value) VALUES ('written', 'by the handler')")
        yield


def job_of_two_tasks(stage: Stage) -> tuple[int, Lease]:
    """Return a job with one claimed and one ready task, and the lease of the first."""
    job_id = stage.one()
    [first] = stage.claim()
    with fenced.ending(stage.db, *first.key, worker_id="w1") as tx:
        tx.spawn("noop"), tx.spawn("noop")
    [lease] = stage.claim()
    return job_id, lease


def test_nobody_waits_for_a_handler_inside_its_transaction(pg_stage: Stage):
    job_id, lease = job_of_two_tasks(pg_stage)
    pg_stage.one(user="bob")
    with inside_a_handlers_transaction(pg_stage, lease):
        assert pg_stage.report(lease, 0.5) == set()
        assert pg_stage.renew(lease)
        sibling, other = pg_stage.claim(limit=2)
        assert {sibling.job_id, other.job_id} == {job_id, other.job_id}
        assert pg_stage.settle(ending(sibling), ending(other)) == {sibling.task_id, other.task_id}
        verbs.reprioritise(pg_stage.caller(), [job_id], 3)
    assert pg_stage.job(job_id).state == "completed"


def test_a_stop_does_not_wait_for_a_handler_whose_writes_are_then_refused(pg_stage: Stage):
    job_id, lease = job_of_two_tasks(pg_stage)
    with pytest.raises(LeaseLost), inside_a_handlers_transaction(pg_stage, lease):
        assert verbs.stop(pg_stage.caller(), [job_id]) == [job_id]
        with pg_stage.db.read() as conn:
            assert settle.still_held(conn, [lease.key]) == set()
    assert pg_stage.rows("meta", key="written") == []
    pg_stage.db.write(lambda conn, now: job_actions.revoke_strays(conn, now=now))
    assert {row.state for row in pg_stage.rows("tasks", job_id=job_id)} == {"done", "blocked"}


@pytest.mark.parametrize("write", ["write", "step"])
def test_a_write_of_a_running_task_is_refused_after_a_stop(pg_stage: Stage, write: str):
    job_id, lease = job_of_two_tasks(pg_stage)

    def act(tx: Any) -> None:
        tx.execute("INSERT INTO meta (key, value) VALUES ('written', 'late')")
        assert verbs.stop(pg_stage.caller(), [job_id]) == [job_id]

    with pytest.raises(LeaseLost):
        if write == "write":
            fenced.write(pg_stage.db, *lease.key, act)
        else:
            fenced.step(pg_stage.db, *lease.key, "once", act, True)
    assert pg_stage.rows("meta", key="written") == []
    pg_stage.db.write(lambda conn, now: job_actions.revoke_strays(conn, now=now))


@contextmanager
def paused_before(stage: Stage, text: str, act: Callable[[], Any]) -> Iterator[None]:
    """Run `act` in a thread that stops before the first statement with this text, for the block."""
    reached, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=act)

    def stop(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
        if threading.current_thread() is thread and text in statement and not reached.is_set():
            reached.set()
            go_on.wait(10)

    sa.event.listen(stage.db.engine, "before_cursor_execute", stop)
    thread.start()
    until(lambda: reached.is_set() or not thread.is_alive())
    try:
        yield
    finally:
        go_on.set()
        thread.join()
        sa.event.remove(stage.db.engine, "before_cursor_execute", stop)


@pytest.mark.parametrize("first, then", [("stop", "resume"), ("cancel", "retry")])
def test_a_job_that_runs_again_during_the_sweep_of_its_halt_runs(
    pg_stage: Stage, first: str, then: str
):
    job_id = pg_stage.one()
    with pg_stage.db.begin() as conn:
        job_actions.halt(conn, [job_id], first, None, now=pg_stage.now())
    sweep = partial(pg_stage.db.write, lambda conn, now: job_actions.sweep_halted(conn, now=now))
    with paused_before(pg_stage, "UPDATE tasks", sweep):
        # It waits for the sweep, or comes before it.
        act = partial(verbs.VERBS[then], pg_stage.caller(), [job_id])
        thread = threading.Thread(target=act)
        thread.start()
        thread.join(0.3)
    thread.join()
    assert pg_stage.run() == [job_id]
    assert pg_stage.job(job_id).state == "completed"


def test_a_successor_that_is_resumed_while_its_predecessor_ends_runs(pg_stage: Stage):
    before = pg_stage.one()
    job_id = pg_stage.one(after=(before,))
    [lease] = pg_stage.claim()
    verbs.stop(pg_stage.caller(), [job_id])
    settling = partial(pg_stage.settle, ending(lease))
    with paused_before(pg_stage, "fair_tag", settling):
        thread = threading.Thread(target=partial(verbs.resume, pg_stage.caller(), [job_id]))
        thread.start()
        thread.join(0.3)
    thread.join()
    assert pg_stage.run() == [job_id]


def test_a_successor_whose_job_was_locked_is_released_by_the_sweep(pg_stage: Stage):
    later = pg_stage.one()
    before = pg_stage.one()
    with pg_stage.db.begin() as conn:  # an edge to a job with a lower id, as a `ref` can make one
        [task] = pg_stage.rows("tasks", job_id=later)
        rows = [(before, None, task.id, "cancel")]
        hold = partial(transition.transition, conn, [(task.id,)], "hold", now=pg_stage.now())
        hold(source=task.state, reason="after")
        dependencies.add(conn, rows)
        conn.exec_driver_sql(f"UPDATE tasks SET waits = 1 WHERE id = {task.id}")
        conn.exec_driver_sql(f"UPDATE jobs SET has_successors = true WHERE id = {before}")
    [lease] = pg_stage.claim()
    with pg_stage.db.begin() as conn:
        conn.exec_driver_sql(f"SELECT 1 FROM jobs WHERE id = {later} FOR UPDATE")
        assert pg_stage.settle(ending(lease)) == {lease.task_id}
    assert pg_stage.task(later).reason == "after"
    pg_stage.db.write(lambda conn, now: transition.satisfy_late(conn, now=now))
    assert pg_stage.run() == [later]


def test_stopped_tasks_of_an_active_job_are_released(stage: Stage):
    job_id = stage.one()
    with stage.db.begin() as conn:
        [task] = stage.rows("tasks", job_id=job_id)
        hold = partial(transition.transition, conn, [(task.id,)], "hold", now=stage.now())
        hold(source=task.state, reason="stopped")
    assert [v.name for v in doctor.examine(stage.db).violations] == ["tasks.stopped"]
    assert stage.db.write(lambda conn, now: release.release_stuck(conn, now=now)) == 1
    assert stage.run() == [job_id]


def test_a_deadlock_inside_a_handlers_transaction_costs_no_attempt(pg_stage: Stage):
    pg_stage.many(2)
    lease, other = pg_stage.claim(limit=2)
    with pg_stage.db.begin() as conn:
        conn.exec_driver_sql("INSERT INTO meta (key, value) VALUES ('a', '0'), ('b', '0')")
    meet = threading.Barrier(2, timeout=10)

    def write(mine: Lease, first: str, second: str) -> Any:
        try:
            with fenced.ending(pg_stage.db, *mine.key, worker_id="w1") as tx:
                tx.execute("UPDATE meta SET value = '1' WHERE key = :key", {"key": first})
                meet.wait()
                tx.execute("UPDATE meta SET value = '1' WHERE key = :key", {"key": second})
        except DatabaseUnavailable as error:
            return judge(mine, error).outcome
        return "done"

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(write, lease, "a", "b"), pool.submit(write, other, "b", "a")]
        assert sorted(each.result() for each in found) == ["done", "outage"]
