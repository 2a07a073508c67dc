"""The worker: claims tasks, hands them to its children, renews leases and settles results.

One thread, one selector, no user code. Each turn reads what the children report, then does
everything that the database needs in one transaction: settle, progress, claim. When the database
is unavailable the children keep running, and their results are settled when it is back.
"""

import contextlib
import functools
import os
import random
import selectors
import shutil
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from quire import log, plugins
from quire.clock import Instant
from quire.errors import DatabaseUnavailable, SchemaAhead, Transferred, WorkerStartFailed
from quire.model.contracts import JobKind
from quire.model.outcomes import Key, Lease, Outcome, RunReport, Settlement, decide
from quire.runtime.child.channel import MAX_BATCH, Progress
from quire.runtime.child.pool import ChildPool
from quire.runtime.worker.claim_gate import ClaimGate
from quire.runtime.worker.last_child import LastChild
from quire.runtime.worker.registration import Registration
from quire.runtime.worker.sweep import sweep
from quire.sandbox import confine
from quire.settings import Settings
from quire.store import Connection, open_database
from quire.store.db import migrate
from quire.store.queue import (
    claim,
    commit_recovery,
    metric_counters,
    owners,
    plain_turn,
    release,
    settle,
    workers,
)
from quire.store.queue import progress as progress_store
from quire.store.queue.commit_recovery import HeldTask

#: How often running leases are compared with the database, to notice stops and cancels.
CHECK_LEASES_EVERY = 0.25
#: How long a lease may wait behind a busy child before it is returned.
MAX_WAIT = 1.0
PROGRESS_EVERY = 0.5
#: Progress reports kept while the database is unavailable; the oldest are dropped first.
MAX_REPORTS = 2_000
#: How often the position of the fair order is written.
FAIR_ORDER_EVERY = 0.3
MAX_RETRY_DELAY = 5.0
#: The worker gives up if this many children fail before any of them has started.
START_TRIES = 3

#: A batch for one child should take about this many seconds.
BATCH_SECONDS = 0.1
#: Tasks shorter than this are claimed before a child is idle, which would wait for the commit.
SHORT_TASK = 0.25
#: How many tasks to prefetch for each busy child.
PREFETCH_TASKS = 2
#: Outcomes of runs whose duration is typical of their kind.
_COMPLETED = (Outcome.DONE, Outcome.SETTLED, Outcome.PERMANENT, Outcome.TRANSIENT)
#: Weight of the latest run in the moving average of run times.
_LATEST_WEIGHT = 0.2
_DEFAULT_RUN_TIME = 1.0
#: What was claimed in the order of the queue, and for the last child.
Claims = tuple[list[claim.Claimed], list[claim.Claimed]]


def run(settings: Settings) -> int:
    """Run a worker until it is told to stop; returns the exit code."""
    confine.check(settings.sandbox)
    return Worker(settings).run()


class RunTimes:
    """Moving averages of how long runs take: per kind, and over all."""

    def __init__(self) -> None:
        self._by_kind: dict[str, float] = {}
        self._overall = _DEFAULT_RUN_TIME

    def add(self, kind: str, seconds: float) -> None:
        """Record a run."""
        before = self._by_kind.get(kind, seconds)
        self._by_kind[kind] = before + _LATEST_WEIGHT * (seconds - before)
        self._overall += _LATEST_WEIGHT * (seconds - self._overall)

    def expected(self, kind: str) -> float:
        """Return the expected run time of a kind."""
        return self._by_kind.get(kind, _DEFAULT_RUN_TIME)

    def batch_size(self) -> int:
        """Return how many tasks to claim for one child."""
        return min(max(int(BATCH_SECONDS / max(self._overall, 1e-6)), 1), MAX_BATCH)

    def are_short(self) -> bool:
        """Tell whether runs are so short that the time between them matters."""
        return self._overall < SHORT_TASK


class Room(NamedTuple):
    """How much a worker may claim now."""

    #: Idle children that anybody's tasks may take.
    children: int
    #: How many tasks to claim for them, and ahead of time for busy ones.
    tasks: int
    #: How many to claim for the last free child, of tenants of which the worker runs nothing.
    kept: int


class Backlog:
    """Leases that were claimed and not yet handed to a child, in queue order."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Lease, float]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, leases: Iterable[Lease], now: float) -> None:
        """Append leases in the order of their claim."""
        self._waiting.extend((lease, now) for lease in leases)

    def has_waited(self, seconds: float, now: float) -> bool:
        """Tell whether a lease has waited for a child for longer than `seconds`."""
        return bool(self._waiting) and now - self._waiting[0][1] > seconds

    def leases(self) -> list[Lease]:
        """List the leases."""
        return [lease for lease, _ in self._waiting]

    def keys(self) -> list[Key]:
        """List the leases as (task id, fence)."""
        return [lease.key for lease, _ in self._waiting]

    def take(self, lost: set[Key]) -> list[Lease]:
        """Remove and return leases that were revoked."""
        taken = [lease for lease, _ in self._waiting if lease.key in lost]
        self._waiting = deque(x for x in self._waiting if x[0].key not in lost)
        return taken

    def take_all(self) -> list[Lease]:
        """Remove and return every lease."""
        leases = [lease for lease, _ in self._waiting]
        self._waiting.clear()
        return leases

    def take_batch(
        self, run_times: RunTimes, limit: int, is_barred: Callable[[Lease], bool] | None = None
    ) -> list[Lease]:
        """Remove the next batch for one child: about 100 ms of work, or one task to run alone."""
        batch: list[Lease] = []
        passed: list[tuple[Lease, float]] = []
        budget = BATCH_SECONDS
        while self._waiting and len(batch) < min(limit, MAX_BATCH):
            lease, _ = self._waiting[0]
            if is_barred and is_barred(lease):
                passed.append(self._waiting.popleft())
                continue
            seconds = run_times.expected(lease.kind)
            if batch and (seconds > budget or lease.is_alone):
                break
            self._waiting.popleft()
            batch.append(lease)
            budget -= seconds
            if lease.is_alone:
                break
        self._waiting.extendleft(reversed(passed))
        return batch


class Worker:
    """One worker process."""

    def __init__(
        self,
        settings: Settings,
        gate: ClaimGate | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.gate = gate or ClaimGate()
        self.monotonic = monotonic
        self.id = f"w-{uuid.uuid4().hex[:8]}"
        self.db = open_database(
            settings.database,
            synchronous=settings.sqlite_synchronous,
            lease_seconds=settings.lease_seconds,
        )
        self.kinds: dict[str, JobKind] = {}
        self.concurrency = settings.concurrency or max(os.cpu_count() or 1, 2)
        self.selector = selectors.DefaultSelector()
        self.scratch = settings.home / "scratch" / self.id
        self.children = ChildPool(
            concurrency=self.concurrency, plugins=[*plugins.installed(), *settings.plugins],
            selector=self.selector, scratch=self.scratch, max_tasks=settings.child_max_tasks,
            max_rss=settings.child_max_rss,
            settings={
                **settings.for_children, "worker_id": self.id, "scratch": str(self.scratch),
            },
        )  # fmt: skip
        self.run_times = RunTimes()
        self.backlog = Backlog()
        self.last_child = LastChild(self.concurrency)
        #: Leases that a child has.
        self.running: dict[Key, Lease] = {}
        #: Of those, the ones that this worker told to stop.
        self.revoked: set[Key] = set()
        self.settlements: list[Settlement] = []
        self.progress: deque[Progress] = deque(maxlen=MAX_REPORTS)
        #: Leases whose place in the fair order is not written yet.
        self.claimed: list[Lease] = []
        self.drain_by: float | None = None
        self.exit_code = 0
        #: There may be tasks to claim.
        self.should_claim = True
        self.queue_turn = 0
        #: The kinds of each queue that other workers run and this one does not.
        self.elsewhere: dict[str, set[str]] = {}
        self.look_ahead = claim.LOOK_AHEAD
        self.next_due_at: float | None = None
        self.was_contended = False
        #: Database time minus monotonic time: the wall clock of this host may be wrong.
        self.clock_offset = 0.0
        #: The result of the last COMMIT is unknown.
        self.is_in_doubt = False
        self.retry_delay = 0.0
        self.retry_at = 0.0
        self.due = dict.fromkeys(
            ("heartbeat", "sweep", "poll", "leases", "progress", "fair order"), 0.0
        )

    def run(self) -> int:
        """Work until drained, then return the leases that are still held."""
        self.registration = Registration(self.db, self.settings, self.id, self.selector, self.gate)
        try:
            self._start()
            while not self._is_over():
                self._wait()
                self._serve_children()
                self._hand_out()  # prefetched tasks, before the database is asked for more
                if self.monotonic() >= self.retry_at:
                    self._try_turn()
                self._hand_out()
                self.gate.release(self._unsettled)
                self._write_fair_order()
        finally:
            self._leave()
            self.gate.close()
        return self.exit_code

    def _start(self) -> None:
        self.children.start()
        while not self.children.kinds and not self.registration.stop_requests:
            self._wait()
            self._serve_children()
            if (failures := self.children.failed_starts) >= START_TRIES:
                raise WorkerStartFailed(
                    f"worker {self.id}: no child process started in {failures} attempts; the log "
                    "has the reasons. Fix the plugin it names, or start without it."
                )
        self.kinds = self.children.kinds
        self.registration.register(self.kinds.values(), self.concurrency)
        log.event("worker.started", worker=self.id, pid=os.getpid(), children=self.concurrency)

    def _is_over(self) -> bool:
        if self.registration.stop_requests >= 2:
            return True
        if self.drain_by is None:
            if self.registration.stop_requests:
                self._drain()
            return False
        is_late = self.monotonic() >= self.drain_by
        return is_late or (not self.running and not self.settlements)

    def _drain(self) -> None:
        log.event("worker.draining", worker=self.id, running=len(self.running))
        self.drain_by = self.monotonic() + self.settings.stop_grace
        self._return(self.backlog.take_all())
        for child in {child for child, _ in self.children.assigned()}:
            self._return_assigned(self.children.take_back(child))
        self.children.drain()
        self.registration.mark_draining()

    def _leave(self) -> None:
        """Kill what still runs, return its leases, and deregister."""
        self._record(self.children.kill_all(), was_revoked=True)
        self._return(self.backlog.take_all())
        self.children.close()
        self.registration.leave(self.settlements)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.db.close()
        log.event("worker.stopped", worker=self.id)

    def _wait(self) -> None:
        self.registration.listener.register(self.selector)
        for key, _ in self.selector.select(self._idle_seconds()):
            if isinstance(key.data, str) and self.registration.clear_wakeup(key.data):
                self.should_claim = self.last_child.should_look = True
                self.due["leases"] = 0.0

    def _idle_seconds(self) -> float:
        """Return how long to wait if nothing happens."""
        now = self.monotonic()
        if now < self.retry_at:
            return self.retry_at - now
        if self.settlements or self._wants_claim():
            return 0.0
        due = self.due
        times = [due["heartbeat"], due["sweep"], due["poll"], self.gate.next_deadline()]
        if self.running:
            times.append(due["leases"])
        if self.progress:
            times.append(due["progress"])
        if self.drain_by is not None:
            times.append(self.drain_by)
        if self.next_due_at is not None and not self.should_claim:
            times.append(self.next_due_at - self.clock_offset)
        if (deadline := self.children.next_deadline(now)) is not None:
            times.append(deadline)
        return max(min(times) - now, 0.0)

    def _serve_children(self) -> None:
        reports, progress = self.children.serve(self.monotonic())
        self._record(reports)
        for one in progress:
            if (one.task_id, one.fence) in self.running:
                self.progress.append(one)
        errors = self.children.start_errors
        while errors:
            log.event("child.failed", level="error", worker=self.id, why=errors.popleft())

    def _record(self, reports: list[RunReport], *, was_revoked: bool = False) -> None:
        """Decide how to settle the runs that have ended."""
        for report in reports:
            key = report.task_id, report.fence
            lease = self.running.pop(key, None)
            if lease is None:
                continue
            asked = was_revoked or key in self.revoked
            self.revoked.discard(key)
            if report.duration is not None and report.outcome in _COMPLETED:
                self.run_times.add(lease.kind, report.duration)
            if report.outcome == Outcome.SETTLED:
                # Its own transaction may have added or released tasks.
                self.should_claim = self.last_child.should_look = True
                continue
            settlement = decide(
                report, lease, self.kinds[lease.kind], random.random(), self.id,  # noqa: S311
                asked=asked, ended_at=self.clock_offset + self.monotonic(),
            )  # fmt: skip
            if settlement.move != "finish":
                log.event(
                    f"task.{settlement.move}", task=lease.task_id, job=lease.job_id,
                    kind=lease.kind, attempt=lease.attempt, outcome=settlement.outcome,
                    error=settlement.error,
                )  # fmt: skip
            self.settlements.append(settlement)

    def _try_turn(self) -> None:
        try:
            self._turn()
        except (SchemaAhead, Transferred) as error:
            self.exit_code = error.exit_code
            log.trouble("worker.outdated", error, worker=self.id)
            self._drain()
            if isinstance(error, Transferred):
                self.drain_by = self.monotonic()  # no result could be stored
        except DatabaseUnavailable as error:
            self.retry_delay = min(max(self.retry_delay * 2, 0.1), MAX_RETRY_DELAY)
            self.retry_at = self.monotonic() + self.retry_delay
            self._doubt()
            log.trouble("worker.waits", error, worker=self.id, again_in=f"{self.retry_delay:g} s")
        else:
            self.retry_delay, self.is_in_doubt = 0.0, False

    def _doubt(self) -> None:
        """Ask the database which leases we hold: a COMMIT may have succeeded unseen."""
        self.is_in_doubt, self.due["heartbeat"] = True, 0.0

    def _turn(self) -> None:
        now = self.monotonic()
        if now >= self.due["heartbeat"]:
            self._heartbeat()
            self.due["heartbeat"] = now + self.settings.heartbeat_interval
        if now >= self.due["sweep"]:
            self.registration.listener.reopen()
            sweep(self.db, self.settings, self.id, list(self.kinds))
            self.due["sweep"] = now + self.settings.sweep_interval
            self.should_claim, self.look_ahead = True, claim.DEEP_LOOK
            self.last_child.should_look = True
        if self.running and now >= self.due["leases"]:
            self._check_leases()
            self.due["leases"] = now + CHECK_LEASES_EVERY
        is_task_due = self.next_due_at is not None and self.next_due_at - self.clock_offset <= now
        if self.gate.should_poll() or is_task_due or now >= self.due["poll"]:
            self.should_claim = self.last_child.should_look = True
            # Here too: with no idle child nothing is written, and _wait must not spin.
            self.due["poll"] = now + self.settings.poll_interval
        if (
            self.settlements
            or self._wants_claim()
            or (self.progress and now >= self.due["progress"])
        ):
            self._write(now)

    def _wants_claim(self) -> bool:
        if self.drain_by is not None or not (self.should_claim or self.last_child.should_look):
            return False
        room = self._room()
        looks = self.last_child.should_look and room.kept > 0
        return looks or (self.should_claim and room.tasks > 0)

    def _room(self) -> Room:
        """Return how much to claim: a batch per idle child, and a few tasks to prefetch."""
        free, batch = len(self.children.idle()), self.run_times.batch_size()
        slots = self.gate.slots(free)
        children = min(slots, self.last_child.unkept(free))
        idle, kept = children * batch, (slots - children) * batch
        busy = 0
        if self.run_times.are_short():
            busy = self.children.started_after(self.monotonic() - SHORT_TASK)
        busy = self.gate.prefetch_slots(busy)
        # Several at a time: each claim is a commit, which the commits of children wait for.
        if not idle and len(self.backlog) >= busy:
            return Room(children, 0, kept)
        return Room(children, idle + busy * PREFETCH_TASKS - len(self.backlog), kept)

    def _write(self, now: float) -> None:
        """Settle, report progress and claim."""
        claims = self._wants_claim() or (bool(self.settlements) and self.drain_by is None)
        room = self._room()
        by_order: list[Lease] = []
        for_last: list[Lease] = []
        is_left = True
        if plain_turn.applies(self.db) and not self.is_in_doubt:
            by_order, is_left = self._take_plain_turn(now, claims, room.tasks)
        try:
            if is_left or self.settlements:
                left = room._replace(tasks=room.tasks - len(by_order))
                more, for_last = self._settle_and_claim(
                    now, self.settlements, left if claims and is_left else None
                )
                by_order += more
                is_left = False
        finally:
            # Also where this failed: what was claimed before is held.
            self.due["poll"] = now + self.settings.poll_interval
            if claims:
                self._add_claimed(by_order, for_last, room, now, is_left=is_left)

    def _take_plain_turn(self, now: float, claims: bool, room: int) -> tuple[list[Lease], bool]:
        """End and claim what is plain; returns the leases, and whether claiming is left to do.

        What has to be settled otherwise is settled before: it may decide what is due next.
        """
        others = [one for one in self.settlements if not plain_turn.may_end(one)]
        if others or (self.progress and now >= self.due["progress"]):
            self._settle_and_claim(now, others)
        began = self.monotonic()
        wanted = self._wanted(room) if claims else None
        turn = plain_turn.take(self.db, self.id, self.settlements, wanted)
        self.settlements = [one for one in self.settlements if one.key not in turn.ended]
        if turn.at is not None:
            self.clock_offset = turn.at - began
        if turn.claimed:
            self.next_due_at = turn.next_due_at
            self.queue_turn += 1
        if turn.has_failed:
            self._doubt()
        leases = [lease for part in turn.claimed for lease in part.leases()]
        return leases, turn.is_left or (claims and wanted is None)

    def _wanted(self, room: int) -> plain_turn.Wanted | None:
        """Return what to claim; None if tasks are due, or must be passed over or waited for."""
        now = self.clock_offset + self.monotonic()
        is_task_due = self.next_due_at is not None and self.next_due_at <= now
        if is_task_due or self.was_contended or any(self.elsewhere.values()):
            return None
        if self.last_child.is_kept:
            return None
        return plain_turn.Wanted(self._queues(), self.kinds, room, self.settings.lease_seconds)

    def _queues(self) -> list[str]:
        """Return the queues, starting with another one at each claim."""
        queues = self.settings.queues
        first = self.queue_turn % len(queues)
        return [*queues[first:], *queues[:first]]

    def _settle_and_claim(
        self, now: float, settlements: list[Settlement], room: Room | None = None
    ) -> tuple[list[Lease], list[Lease]]:
        """Settle, report progress and claim, in one transaction.

        Returns the leases in the order of the queue, and those for the last child.
        """
        progress = list(self.progress)

        def act(conn: Connection, at: Instant) -> tuple[set[Key], Claims, float | None]:
            recorded = commit_recovery.recorded(conn, settlements) if self.is_in_doubt else set()
            fresh = [one for one in settlements if one.key not in recorded]
            settled = recorded | settle.settle(conn, fresh, now=at)
            if progress:
                progress_store.report(conn, progress, now=at)
            claimed: Claims = [], []
            due_at = self.next_due_at
            if room is not None:
                if due_at is not None and due_at <= at.wall:
                    release.release_due(conn, now=at)
                claimed, due_at = self._claim(conn, at, room)
            self.clock_offset = at.wall - self.monotonic()
            metric_counters.add(conn, "refused", sum(one.key not in settled for one in settlements))
            return settled, claimed, due_at

        settled, claimed, self.next_due_at = self.db.write(act)
        for one in settlements:
            if one.key not in settled:
                log.event("task.refused", task=one.task_id, fence=one.fence, worker=self.id)
        written = {one.key for one in settlements}
        self.settlements = [one for one in self.settlements if one.key not in written]
        self.progress.clear()
        self.due["progress"] = now + PROGRESS_EVERY
        by_order, for_last = ([x for part in parts for x in part.leases()] for parts in claimed)
        return by_order, for_last

    def _add_claimed(
        self, by_order: list[Lease], for_last: list[Lease], room: Room, now: float, *, is_left: bool
    ) -> None:
        """Hold what was claimed, and note whether there may be more."""
        leases = [*by_order, *for_last]
        # Fewer than asked for: the queue is empty until something wakes this worker.
        self.should_claim = is_left or len(by_order) >= room.tasks or self.was_contended
        if room.kept:
            self.last_child.should_look = is_left or self.was_contended
        if room.tasks > 0 or room.kept:
            keys = [lease.key for lease in leases]
            self.gate.claimed(keys, is_queue_empty=not self.should_claim)
        self.backlog.add(leases, now)
        self.claimed += leases

    def _claim(self, conn: Connection, at: Instant, room: Room) -> tuple[Claims, float | None]:
        """Claim in the order of the queue, then for the last child if that may have left something.

        Returns what was claimed, and when the next blocked task is due.
        """
        limits = claim.read_limits(conn)
        by_order = self._claim_from_queues(conn, at, limits, room.tasks, room.children)
        for_last: list[claim.Claimed] = []
        if self.last_child.is_kept:
            taken = [lease for part in by_order for lease in part.leases()]
            held = [*self.running.values(), *self.backlog.leases(), *taken]
            self.last_child.learn(conn, held)
            may_have_left = len(taken) >= room.tasks or any(
                part.was_contended or part.has_set_aside for part in by_order
            )
            if room.kept and may_have_left:
                without = self.last_child.tenants(held)
                for_last = self._claim_from_queues(conn, at, limits, room.kept, 1, without)
                self.last_child.learn(conn, [x for part in for_last for x in part.leases()])
        parts = [*by_order, *for_last]
        if not any(part.rows for part in parts):
            self.look_ahead = claim.LOOK_AHEAD
        # The next claim waits for the transaction that held what this one might have claimed.
        self.was_contended = any(part.was_contended and not part.rows for part in parts)
        self.queue_turn += 1
        if limits.capped or any(part.has_set_aside for part in parts):
            return (by_order, for_last), release.next_due_at(conn)
        return (by_order, for_last), limits.next_due_at

    def _claim_from_queues(
        self,
        conn: Connection,
        at: Instant,
        limits: claim.Limits,
        room: int,
        alone: int,
        without: Collection[str] = (),
    ) -> list[claim.Claimed]:
        """Claim from all queues, starting with another one each time."""
        parts: list[claim.Claimed] = []
        for queue in self._queues():
            if room <= 0:
                break
            part = claim.claim_rows(
                conn, self.id, queue, self.kinds, now=at, ttl=self.settings.lease_seconds,
                limit=room, alone=alone, elsewhere=self.elsewhere.get(queue, ()),
                look_ahead=self.look_ahead, without=without, wait=self.was_contended,
                limits=limits,
            )  # fmt: skip
            room -= len(part.rows)
            parts.append(part)
        return parts

    def _write_fair_order(self) -> None:
        """Write how far the fair order has got, in a transaction that no claim waits for.

        If the write is lost, the order is a little less fair.
        """
        now = self.monotonic()
        if not self.claimed or now < self.due["fair order"]:
            return
        claimed, self.claimed = self.claimed, []
        self.due["fair order"] = now + FAIR_ORDER_EVERY
        with contextlib.suppress(DatabaseUnavailable):
            self.db.write(lambda conn, _: claim.advance(conn, claimed))

    def _hand_out(self) -> None:
        """Give each idle child a batch; return leases that wait too long behind busy children."""
        idle = self.children.idle()
        for at, child in enumerate(idle):
            share = -(-len(self.backlog) // max(self.last_child.unkept(len(idle) - at), 1))
            is_barred = None
            if self.last_child.is_kept and at == len(idle) - 1:
                busy = self.last_child.tenants(self.running.values())
                is_barred = functools.partial(self.last_child.is_of, busy)
            if batch := self.backlog.take_batch(self.run_times, share, is_barred):
                for lease in batch:
                    self.running[lease.key] = lease
                self.children.assign(child, batch)
        self._return_waiting()

    def _return_waiting(self) -> None:
        now = self.monotonic()
        for child in {child for child, _ in self.children.assigned()}:
            task = child.running()
            if task is None or len(child.unfinished) < 2:
                continue
            if now - task.started > MAX_WAIT:
                self._return_assigned(self.children.take_back(child))
        if self.backlog.has_waited(MAX_WAIT, now):
            self._return(self.backlog.take_all())

    def _return_assigned(self, leases: list[Lease]) -> None:
        held = [self.running.pop(lease.key, None) for lease in leases]
        self._return([lease for lease in held if lease is not None])

    def _return(self, leases: Iterable[Lease | HeldTask]) -> None:
        self.settlements += [
            Settlement(
                x.task_id, x.fence, x.job_id, "return", Outcome.RETURNED, refund_attempt=True,
                began_at=x.begin_at, duration=0.0, worker_id=self.id,
            )
            for x in leases
        ]  # fmt: skip

    def _keys(self) -> list[Key]:
        return [*self.running, *self.backlog.keys()]

    def _unsettled(self) -> set[Key]:
        return {*self._keys(), *(one.key for one in self.settlements)}

    def _heartbeat(self) -> None:
        """Renew every lease in one statement; a row that does not come back was lost."""
        keys, polling_since = self._keys(), self.gate.polling_since
        lease_seconds = self.settings.lease_seconds

        def act(
            conn: Connection, now: Instant
        ) -> tuple[set[Key], list[HeldTask], dict[str, set[str]], bool]:
            if self.drain_by is None:
                migrate.check(conn)  # a heartbeat after an announced migration agrees to it
            if not workers.heartbeat(conn, self.id, now=now, alone_since=polling_since):
                workers.revive(conn, self.id, now=now)
            kept = settle.renew(conn, keys, now=now, ttl=lease_seconds)
            others = workers.kinds_elsewhere(conn, self.id, since=now.wall - lease_seconds)
            several = owners.has_several_tenants(conn)
            return kept, commit_recovery.held_by(conn, self.id), others, several

        kept, held, others, several = self.db.write(act)
        self.last_child.update(has_several_tenants=several)
        self.elsewhere = {queue: kinds - set(self.kinds) for queue, kinds in others.items()}
        self._revoke_lost(keys, kept)
        # Claimed by a COMMIT whose reply was lost: no child has it, so it is returned.
        known = {*keys, *(one.key for one in self.settlements)}
        for row in held:
            if (row.task_id, row.fence) not in known:
                log.event("task.stray", level="warning", task=row.task_id, worker=self.id)
                self._return([row])

    def _check_leases(self) -> None:
        keys = self._keys()
        with self.db.read() as conn:
            kept = settle.still_held(conn, keys)
        self._revoke_lost(keys, kept)

    def _revoke_lost(self, keys: list[Key], kept: set[Key]) -> None:
        """Stop the runs whose lease is gone; their results would be refused."""
        lost = set(keys) - kept
        for key in lost & set(self.running):
            # If the task has just settled itself, its child reports that and goes on.
            if key not in self.revoked and self.children.revoke(*key):
                self.revoked.add(key)
                log.event("task.revoked", task=key[0], fence=key[1], worker=self.id)
        # The store waits to be told that these never began; the lease of any other is over.
        dropped = self.backlog.take(lost)
        self._return(lease for lease in dropped if self.kinds[lease.kind].at_most_once)
