"""Random interleavings of everything that happens to tasks, against a model of a few lines.

The model knows who holds which lease. From that alone it predicts which renewals, reports and
ends are accepted; the store must agree, whatever the order. In the end nothing is left waiting.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any, ClassVar

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from quire.control import jobs as verbs
from quire.errors import LeaseLost
from quire.model.outcomes import Lease
from quire.model.records import Submission
from quire.model.states import TASK_FINAL, TaskState
from quire.store import open_database
from quire.store.db.engine import Database
from quire.store.db.schema import queue as tables
from quire.store.queue import fenced, job_actions
from tests.store.stage import KINDS, TTL, Stage, ending

WORKERS = st.sampled_from(["w1", "w2"])
PICK = st.integers(0, 1000)
USERS = st.sampled_from(["ada", "bob"])
#: Another number of random examples, for a long search: ENGINE_EXAMPLES=5000. (Variables that
#: begin with QUIRE_ are deleted before a test run.)
EXAMPLES = int(os.environ.get("ENGINE_EXAMPLES", "0"))


class Engine(RuleBasedStateMachine):
    """One history of a database."""

    db: ClassVar[Database]

    @initialize()
    def begin(self) -> None:
        with self.db.begin() as conn:
            for table in reversed(tables.metadata.sorted_tables):
                if table.name != "meta":
                    conn.execute(sa.delete(table))
        self.stage = Stage(self.db)
        self.jobs: list[int] = []
        self.tasks = 0
        self.seen: list[tuple[str, Lease]] = []  # every lease ever given, and to whom
        self.holder: dict[int, tuple[str, int, float]] = {}  # task -> worker, fence, end
        self.fences: Counter[int] = Counter()
        self.finished: Counter[int] = Counter()
        self.progress: dict[int, float] = {}
        # Something to do from the start: most random histories would be about nothing else.
        for user in ("ada", "bob"):
            self.jobs += self.stage.many(2, user=user)
            self.tasks += 2

    # What people do.

    @rule(
        user=USERS,
        count=st.integers(1, 3),
        kind=st.sampled_from(["noop", "noop", "once", "other"]),
        priority=st.integers(1, 10),
        delay=st.sampled_from([None, None, 30.0]),
        before=st.lists(PICK, max_size=2),
        after_failure=st.sampled_from(["cancel", "run"]),
        policy=st.sampled_from(["all", "all", "queue", "replace"]),
    )
    def submit(self, user, count, kind, priority, delay, before, after_failure, policy):
        after = tuple({self.jobs[n % len(self.jobs)] for n in before}) if self.jobs else ()
        run_at = None if delay is None else self.stage.clock.now().wall + delay
        wish = Submission(
            kind, priority=priority, run_at=run_at, after=after, after_failure=after_failure
        )
        self.jobs += self.stage.submit(*[wish] * count, user=user, policy=policy)
        self.tasks += count
        if policy == "replace":
            self.forget_halted()

    @precondition(lambda self: self.jobs)
    @rule(pick=PICK, verb=st.sampled_from(["stop", "cancel", "resume", "retry"]))
    def ask(self, pick, verb):
        changed = getattr(verbs, verb)(self.stage.caller(), [self.jobs[pick % len(self.jobs)]])
        self.forget_halted(sweeps=bool(changed) and verb in ("stop", "cancel"))

    @precondition(lambda self: self.jobs)
    @rule(
        pick=PICK,
        act=st.sampled_from(["half a stop", "sweep", "first", "last", "pause", "unpause"]),
    )
    def administer(self, pick, act):
        job_id = self.jobs[pick % len(self.jobs)]
        caller, write = self.stage.caller(), self.stage.db.write
        if act == "half a stop":  # whoever stopped it died before moving what waits
            write(lambda conn, now: job_actions.halt(conn, [job_id], "stop", None, now=now))
            self.forget_halted()
        elif act == "sweep":
            while write(lambda conn, now: job_actions.sweep_halted(conn, now=now)):
                pass
        elif act in ("first", "last"):
            verbs.reprioritise(caller, [job_id], 1 if act == "first" else 10)
        else:
            getattr(verbs, act)(caller, "other")

    # What workers do.

    @rule(worker=WORKERS, limit=st.integers(2, 4))
    def claim(self, worker, limit):
        for lease in self.stage.claim(worker, limit=limit):
            assert lease.task_id not in self.holder, "two holders of one task"
            assert lease.fence > self.fences[lease.task_id], "a fence was given out twice"
            self.holder[lease.task_id] = (worker, lease.fence, self.stage.now().lease + TTL)
            self.seen.append((worker, lease))

    @precondition(lambda self: self.seen)
    @rule(worker=WORKERS)
    def renew(self, worker):
        """Renew everything this worker ever held; a paused one wakes up and does just that."""
        mine = {lease.task_id: lease for each, lease in self.seen if each == worker}
        expected = {i for i, lease in mine.items() if self.is_held(lease)}
        assert self.stage.renew(*mine.values()) == expected
        for task_id in expected:
            self.holder[task_id] = (worker, mine[task_id].fence, self.stage.now().lease + TTL)

    @precondition(lambda self: self.seen)
    @rule(
        picks=st.lists(PICK, min_size=1, max_size=3),
        move=st.sampled_from(["finish", "finish", "finish", "fail", "retry", "return", "skip"]),
    )
    def settle(self, picks, move):
        some = {self.seen[n % len(self.seen)][1] for n in picks}
        details: dict[str, dict[str, Any]] = {
            "fail": {"error": "broken"},
            "retry": {"error": "busy", "due_in": 10.0},
            "return": {"refund_attempt": True},
        }
        more = details.get(move, {})
        expected = {lease.task_id for lease in some if self.is_current(lease)}
        outcome = {"finish": "done", "return": "returned"}.get(move, move)
        # A worker never tries again what must not run twice: `outcomes.decide` lets it fail.
        failed = ("fail", "fail", {"error": "busy"})
        ends = []
        for lease in some:
            is_last = move == "retry" and KINDS[lease.kind].at_most_once
            how, told_as, given = failed if is_last else (move, outcome, more)
            ends.append(ending(lease, how, told_as, **given))
        told = {lease.task_id for lease in some if self.is_held(lease)}
        assert self.stage.settle(*ends) == expected
        for task_id in told:
            del self.holder[task_id]
        for task_id in expected:
            self.finished[task_id] += move == "finish"

    @precondition(lambda self: self.seen)
    @rule(pick=PICK, count=st.integers(1, 3), chained=st.booleans())
    def split(self, pick, count, chained):
        lease = self.seen[pick % len(self.seen)][1]
        expected = self.is_current(lease)
        try:
            with fenced.ending(
                self.stage.db, lease.task_id, lease.fence, began_at=0.0, worker_id=None
            ) as transaction:
                for n in range(count):
                    transaction.spawn("noop", after=[n - 1] if chained and n else [])
            accepted = True
        except LeaseLost:
            accepted = False
        assert accepted == expected
        if accepted:
            del self.holder[lease.task_id]
            self.finished[lease.task_id] += 1
            self.tasks += count

    @precondition(lambda self: self.seen)
    @rule(pick=PICK, fraction=st.floats(0, 1))
    def report(self, pick, fraction):
        lease = self.seen[pick % len(self.seen)][1]
        expected = {lease.task_id} if self.is_held(lease) else set()
        assert self.stage.report(lease, fraction, "so far") == expected

    # What time and death do.

    @precondition(lambda self: self.holder)
    @rule(heir=WORKERS, is_dead=st.booleans())
    def lose_everything_to_an_heir(self, heir, is_dead):
        """Let every lease end, or one worker die, and another worker claim at once."""
        other = "w1" if heir == "w2" else "w2"
        if not is_dead:
            self.stage.clock.advance(TTL + 1)
        self.reap(other if is_dead else None)
        self.claim(heir, 4)

    @rule(seconds=st.sampled_from([1.0, 15.0, TTL + 1]))
    def wait(self, seconds):
        self.stage.clock.advance(seconds)
        self.stage.move_due()

    @rule(dead=st.one_of(st.none(), WORKERS))
    def reap(self, dead):
        at = self.stage.now().lease
        ended = {i for i, (who, _, end) in self.holder.items() if end < at or who == dead}
        active = {job.id for job in self.stage.rows("jobs") if job.state in ("pending", "running")}
        expected = {row.id for row in self.stage.rows("tasks") if row.job_id in active} & ended
        assert set(self.stage.reap(*([dead] if dead else []))) == expected
        for task_id in ended:
            del self.holder[task_id]

    # What must be true at any moment.

    @invariant()
    def the_model_and_the_database_agree(self):
        counts: dict[int, Counter[str]] = {job_id: Counter() for job_id in self.jobs}
        rows = self.stage.rows("tasks")
        for row in rows:
            counts[row.job_id][row.state] += 1
            assert row.fence >= self.fences[row.id], "a fence went back"
            self.fences[row.id] = row.fence
        assert len(rows) == self.tasks, "a task was lost or doubled"
        running = {r.id: (r.worker_id, r.fence, r.expires_at) for r in rows if r.state == "running"}
        assert running == self.holder
        for job in self.stage.rows("jobs"):
            kept = {s.value: getattr(job, f"tasks_{s}") for s in TaskState}
            assert kept == {s.value: counts[job.id][s] for s in TaskState}
            assert job.progress >= self.progress.get(job.id, 0.0), "progress went back"
            self.progress[job.id] = job.progress
        assert all(n == 1 for n in self.finished.values() if n), "a task was finished twice"

    def teardown(self):
        """Let everything that is stopped go on, and run until nothing is left."""
        if not hasattr(self, "stage"):
            return
        verbs.unpause(self.stage.caller(), "other")
        for job in self.stage.rows("jobs"):
            if job.state == "stopped":
                verbs.resume(self.stage.caller(), [job.id])
        for _ in range(self.tasks + 3):
            self.stage.clock.advance(1000)
            self.stage.reap()
            self.stage.move_due()
            self.stage.run(limit=1000)
            if all(r.state in TASK_FINAL for r in self.stage.rows("tasks")):
                break
        left = [r for r in self.stage.rows("tasks") if r.state not in TASK_FINAL]
        assert left == [], "something waits for ever"
        states = {job.state for job in self.stage.rows("jobs")}
        assert states <= {"completed", "failed", "cancelled"}
        self.stage.inspect()

    def is_held(self, lease: Lease) -> bool:
        held = self.holder.get(lease.task_id)
        return held is not None and held[1] == lease.fence

    def is_current(self, lease: Lease) -> bool:
        """Tell whether a result of this holder is accepted."""
        is_active = self.stage.job(lease.job_id).state in ("pending", "running")
        return self.is_held(lease) and is_active

    def forget_halted(self, *, sweeps: bool = False) -> None:
        """A stop, a cancel or a replacement ends the leases of the job.

        After a stop, the holder of what must not run twice is first asked whether it had begun;
        once its time to tell is over, the next stop or cancel, which `sweeps`, ends its lease too.
        """
        late = self.stage.now().wall - job_actions.TELL_SECONDS
        halted = {
            task.id
            for job in self.stage.rows("jobs")
            if job.state not in ("pending", "running")
            for task in self.stage.rows("tasks", job_id=job.id)
            if not (job.state == "stopped" and task.at_most_once)
            or (sweeps and job.finished_at < late)
        }
        for task_id in halted & set(self.holder):
            del self.holder[task_id]


def search(db: Database, examples: int, steps: int) -> None:
    machine = type("Machine", (Engine,), {"db": db})
    chosen = settings(
        max_examples=EXAMPLES or examples,
        stateful_step_count=steps,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_machine(machine, settings=chosen)


def test_any_interleaving_on_the_embedded_database_keeps_every_promise(tmp_path):
    db = open_database(f"sqlite:///{tmp_path / 'quire.db'}", synchronous="normal")
    db.migrate()
    search(db, examples=100, steps=30)
    db.close()


@pytest.mark.timeout(300)
def test_any_interleaving_on_postgresql_keeps_every_promise(pg_url):
    db = open_database(pg_url)
    search(db, examples=20, steps=30)
    db.close()
