"""The worker: claims tasks, hands them to its children, renews, settles; never runs user code.

One thread and one selector. Each turn reads what the children say, then does everything the
database needs in one transaction: settle, progress, due tasks, claim. A database in trouble
leaves the children running: their results are kept and settled when it is back.
"""

import os
import random
import selectors
import shutil
import time
import uuid
from collections import deque
from collections.abc import Sequence
from typing import Any

from quire import log
from quire.celery.claim_gate import Door, OpenDoor
from quire.clock import Instant
from quire.errors import DatabaseUnavailable, SchemaAhead, WorkerStartFailed
from quire.model.contracts import JobKind
from quire.model.outcomes import decide
from quire.model.records import Ending, Lease
from quire.runtime.child.pool import Assignment, Children, Ended, Progress
from quire.runtime.worker.fair_progress import Bands
from quire.runtime.worker.prefetch import BRISK, TASKS_AHEAD, Backlog, Pace, assignment, strays
from quire.runtime.worker.registration import Presence
from quire.runtime.worker.sweep import sweep
from quire.settings import Settings
from quire.store.db import migrate
from quire.store.db.engine import Database
from quire.store.queue import claim, commit_recovery, release, settle, tallies, workers
from quire.store.queue import progress as progress_store

#: How often held leases are compared with the database while tasks run.
REVOKED_EVERY = 0.25
#: How long a lease may wait behind a busy child before it is given back.
BEHIND_SECONDS = 1.0
PROGRESS_EVERY = 0.5
#: Reports kept while the database is away; the oldest go first.
PROGRESS_KEPT = 2_000
LONGEST_TROUBLE = 5.0
#: Children that fail to start before any has, after which the worker gives up.
START_TRIES = 3


def run(settings: Settings) -> int:
    """Run a worker until it is told to stop; returns the exit code."""
    return Worker(settings).run()


class Worker:
    """The state of one worker process."""

    def __init__(self, settings: Settings, door: Door | None = None) -> None:
        self.settings = settings
        self.door = door or OpenDoor()
        self.id = f"w-{uuid.uuid4().hex[:8]}"
        self.db = Database.open(
            settings.database,
            synchronous=settings.sqlite_synchronous,
            lease_seconds=settings.lease_seconds,
        )
        self.kinds: dict[str, JobKind] = {}
        self.concurrency = settings.concurrency or max(os.cpu_count() or 1, 2)
        self.selector = selectors.DefaultSelector()
        self.scratch = settings.home / "scratch" / self.id
        self.children = Children.of(
            settings, self.id, self.selector, self.scratch, concurrency=self.concurrency
        )
        self.pace = Pace()
        self.backlog = Backlog()
        self.held: dict[tuple[int, int], Lease] = {}
        self.endings: list[Ending] = []
        self.progress: deque[Progress] = deque(maxlen=PROGRESS_KEPT)
        self.asked: set[tuple[int, int]] = set()
        self.drain_by: float | None = None
        self.exit_code = 0
        self.is_woken = True
        self.queue_turn = 0
        self.next_due: float | None = None
        #: The database's time less our monotonic one: this host's wall clock may be wrong.
        self.epoch = 0.0
        self.is_in_doubt = False
        self.trouble_delay = 0.0
        self.retry_at = 0.0
        self.at = dict.fromkeys(("beat", "sweep", "poll", "look", "progress"), 0.0)
        self.bands = Bands(self.db)

    def run(self) -> int:
        """Work until drained; leases still held are given back at the end."""
        self.presence = Presence(self.db, self.settings, self.id, self.selector, self.door)
        try:
            self._prepare()
            while not self._is_over():
                self._wait()
                self._listen_to_children()
                self._hand_out()  # what was claimed ahead, before the database is asked for more
                if time.monotonic() >= self.retry_at:
                    self._attempt_turn()
                self._hand_out()
                self.door.let_go(self._unsettled)
                self.bands.advance()
        finally:
            self._leave()
            self.door.close()
        return self.exit_code

    def _prepare(self) -> None:
        self.children.start()
        self._learn_kinds()
        self.presence.announce(self.kinds.values(), self.concurrency)
        log.event("worker.started", worker=self.id, pid=os.getpid(), children=self.concurrency)

    def _learn_kinds(self) -> None:
        """Wait for the first child to say what it can run."""
        while not self.children.kinds and not self._is_told_to_stop():
            self._wait()
            self._listen_to_children()
            if (failures := self.children.failures) >= START_TRIES:
                raise WorkerStartFailed(
                    f"worker {self.id}: no child could be started in {failures} tries; the log "
                    "says why. Mend the plugin it names, or leave it out."
                )
        self.kinds = self.children.kinds

    def _is_told_to_stop(self) -> bool:
        return bool(self.presence.bell.rung or self.presence.leash.is_cut)

    def _is_over(self) -> bool:
        if self.presence.bell.rung >= 2:
            return True
        if self.drain_by is None:
            if self._is_told_to_stop():
                self._begin_drain()
            return False
        late = time.monotonic() >= self.drain_by
        return late or (not self.held and not self.endings)

    def _begin_drain(self) -> None:
        log.event("worker.draining", worker=self.id, running=len(self.held))
        self.drain_by = time.monotonic() + self.settings.stop_grace
        self._give_back(self.backlog.clear())
        for child in {child for child, _ in self.children.assigned()}:
            self._give_back_assigned(self.children.take_back(child))
        self.children.drain()
        self.presence.say_draining()

    def _leave(self) -> None:
        """Kill what still runs, give its leases back, and sign off."""
        self._note(self.children.kill_all(), asked=True)
        self._give_back(self.backlog.clear())
        self.children.close()
        self.presence.leave(self.endings)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.db.close()
        log.event("worker.stopped", worker=self.id)

    def _wait(self) -> None:
        self.presence.follow_listener()
        for key, _ in self.selector.select(self._patience()):
            if isinstance(key.data, str) and self.presence.woken_by(key.data):
                self.is_woken = True
                self.at["look"] = 0.0

    def _patience(self) -> float:
        """Return how long nothing needs to be done if nothing happens."""
        now = time.monotonic()
        if now < self.retry_at:
            return self.retry_at - now
        if self.endings or self._wants_claim():
            return 0.0
        times = [self.at["beat"], self.at["sweep"], self.at["poll"], self.door.next_at()]
        if self.held:
            times.append(self.at["look"])
        if self.progress:
            times.append(self.at["progress"])
        if self.drain_by is not None:
            times.append(self.drain_by)
        if self.next_due is not None and not self.is_woken:
            times.append(self.next_due - self.epoch)
        if (deadline := self.children.next_deadline(now)) is not None:
            times.append(deadline)
        return max(min(times) - now, 0.0)

    def _listen_to_children(self) -> None:
        ended, progress = self.children.serve(time.monotonic())
        self._note(ended)
        for each in progress:
            if (each.task_id, each.fence) in self.held:
                self.progress.append(each)
        while self.children.trouble:
            log.event(
                "child.failed", level="error", worker=self.id, why=self.children.trouble.popleft()
            )

    def _note(self, ended: list[Ended], *, asked: bool = False) -> None:
        """Turn what children ended into endings to settle."""
        for one in ended:
            key = one.task_id, one.fence
            lease = self.held.pop(key, None)
            if lease is None:
                continue
            was_asked = asked or key in self.asked
            self.asked.discard(key)
            if one.outcome == "settled":
                self.pace.saw(lease.kind, one.duration)
                # Its commit may have planted tasks or let others go.
                self.is_woken = True
                continue
            kind = self.kinds[lease.kind]
            if one.outcome in ("done", "permanent", "transient"):
                self.pace.saw(lease.kind, one.duration)
            ending = decide(one, lease, kind, random.random(), self.id, asked=was_asked)  # noqa: S311
            if ending.began_at is not None:
                began_at = self.epoch + time.monotonic() - one.duration
                ending = ending._replace(began_at=max(lease.begin_at, began_at))
            if ending.move != "finish":
                log.event(
                    f"task.{ending.move}", task=lease.task_id, job=lease.job_id, kind=lease.kind,
                    attempt=lease.attempt, outcome=ending.outcome, error=ending.error,
                )  # fmt: skip
            self.endings.append(ending)

    def _attempt_turn(self) -> None:
        try:
            self._turn()
        except SchemaAhead as error:
            self.exit_code = error.exit_code
            log.trouble("worker.outdated", error, worker=self.id)
            self._begin_drain()
        except DatabaseUnavailable as error:
            self.trouble_delay = min(max(self.trouble_delay * 2, 0.1), LONGEST_TROUBLE)
            self.retry_at = time.monotonic() + self.trouble_delay
            # A COMMIT may have been lost: what does the database say we hold?
            self.is_in_doubt, self.at["beat"] = True, 0.0
            log.trouble("worker.waits", error, worker=self.id, again_in=f"{self.trouble_delay:g} s")
        else:
            self.trouble_delay, self.is_in_doubt = 0.0, False

    def _turn(self) -> None:
        now = time.monotonic()
        if now >= self.at["beat"]:
            self._beat()
            self.at["beat"] = now + self.settings.heartbeat_interval
        if now >= self.at["sweep"]:
            self.presence.reopen_listener()
            sweep(self.db, self.settings, self.id, list(self.kinds))
            self.at["sweep"] = now + self.settings.sweep_interval
            self.is_woken = True
        if self.held and now >= self.at["look"]:
            self._look_for_revoked()
            self.at["look"] = now + REVOKED_EVERY
        is_due = self.next_due is not None and self.next_due - self.epoch <= now
        if self.door.is_due() or is_due or now >= self.at["poll"]:
            self.is_woken = True
            # Set here too: where no child is free nothing is written, and a past time is no wait.
            self.at["poll"] = now + self.settings.poll_interval
        if self.endings or self._wants_claim() or (self.progress and now >= self.at["progress"]):
            self._write(now)

    def _wants_claim(self) -> bool:
        return self.is_woken and self.drain_by is None and self._room() > 0

    def _room(self) -> int:
        """Return how many tasks to claim: for idle children, and some ahead for those soon free."""
        idle = self.door.places(len(self.children.idle())) * self.pace.batch()
        soon = self.children.begun_after(time.monotonic() - BRISK) if self.pace.is_brisk() else 0
        soon = self.door.ahead(soon)
        # Several at a time: each claim is a commit, for which the children's own commits wait.
        if not idle and len(self.backlog) >= soon:
            return 0
        return idle + soon * TASKS_AHEAD - len(self.backlog)

    def _write(self, now: float) -> None:
        """Settle, report, and claim, in one transaction."""
        endings, progress = self.endings, list(self.progress)
        wants = self._wants_claim() or (bool(endings) and self.drain_by is None)
        idle, room = self.door.places(len(self.children.idle())), self._room()

        def act(conn: Any, at: Instant) -> tuple[set[int], list[claim.Claimed], float | None]:
            written = commit_recovery.recorded(conn, endings) if self.is_in_doubt else set()
            fresh = [one for one in endings if one.task_id not in written]
            settled = written | settle.settle(conn, fresh, now=at)
            if progress:
                progress_store.report(conn, progress, now=at)
            claimed: list[claim.Claimed] = []
            due_at = self.next_due
            if wants:
                if due_at is not None and due_at <= at.wall:  # each claim looks for the next
                    release.move_due(conn, now=at)
                claimed, due_at = self._claim(conn, at, idle, room), release.next_due_at(conn)
            self.epoch = at.wall - time.monotonic()
            tallies.add(conn, "refused", sum(one.task_id not in settled for one in endings))
            return settled, claimed, due_at

        settled, claimed, self.next_due = self.db.write(act)
        for one in endings:
            if one.task_id not in settled:
                log.event("task.refused", task=one.task_id, fence=one.fence, worker=self.id)
        leases = [lease for part in claimed for lease in part.leases()]
        self.endings = []
        self.progress.clear()
        self.at["progress"] = now + PROGRESS_EVERY
        self.at["poll"] = now + self.settings.poll_interval
        # Fewer than asked for: the queue is empty until something wakes us.
        self.is_woken = len(leases) >= room if wants else self.is_woken
        if wants and room > 0:
            keys = [(lease.task_id, lease.fence) for lease in leases]
            self.door.claimed(keys, is_all=not self.is_woken)
        self.backlog.add(leases, now)
        self.bands.add(leases)

    def _claim(self, conn: Any, at: Instant, idle: int, room: int) -> list[claim.Claimed]:
        queues = self.settings.queues
        parts: list[claim.Claimed] = []
        for turn in range(len(queues)):
            if room <= 0:
                break
            part = claim.take(
                conn, self.id, queues[(self.queue_turn + turn) % len(queues)], self.kinds,
                now=at, ttl=self.settings.lease_seconds, limit=room, alone=idle,
            )  # fmt: skip
            room -= len(part.rows)
            parts.append(part)
        self.queue_turn += 1
        return parts

    def _hand_out(self) -> None:
        """Give idle children their portions; what waits too long behind busy ones goes back."""
        idle = self.children.idle()
        for at, child in enumerate(idle):
            share = -(-len(self.backlog) // (len(idle) - at))
            if portion := self.backlog.portion(self.pace, share):
                for lease in portion:
                    self.held[lease.task_id, lease.fence] = lease
                self.children.hand(child, [assignment(x, self.kinds[x.kind]) for x in portion])
        self._return_what_waits()

    def _return_what_waits(self) -> None:
        now = time.monotonic()
        for child in {child for child, _ in self.children.assigned()}:
            head = child.head()
            if head is not None and now - head.started > BEHIND_SECONDS and len(child.open) > 1:
                self._give_back_assigned(self.children.take_back(child))
        if self.backlog.has_waited(BEHIND_SECONDS, now):
            self._give_back(self.backlog.clear())

    def _give_back_assigned(self, assignments: list[Assignment]) -> None:
        leases = [self.held.pop((a.task_id, a.fence), None) for a in assignments]
        self._give_back([lease for lease in leases if lease is not None])

    def _give_back(self, leases: Sequence[Any]) -> None:
        self.endings += [
            Ending(x.task_id, x.fence, x.job_id, "return", "returned", give_back=True,
                   began_at=x.begin_at, duration=0.0, worker_id=self.id)
            for x in leases
        ]  # fmt: skip

    def _keys(self) -> list[tuple[int, int]]:
        return [*self.held, *((x.task_id, x.fence) for x in self.backlog.leases())]

    def _unsettled(self) -> set[tuple[int, int]]:
        return {*self._keys(), *((x.task_id, x.fence) for x in self.endings)}

    def _beat(self) -> None:
        """Renew every lease in one statement; a row that does not come back is not ours."""
        keys, alone = self._keys(), self.door.alone_since

        def act(conn: Any, now: Instant) -> tuple[set[int], list[Any]]:
            if self.drain_by is None:
                migrate.lacking(conn)  # whoever beats after an announcement says: I may stay
            if not workers.beat(conn, self.id, now=now, alone_since=alone):
                workers.revive(conn, self.id, now=now)
            kept = settle.renew(conn, keys, now=now, ttl=self.settings.lease_seconds)
            return kept, commit_recovery.held_by(conn, self.id)

        kept, held = self.db.write(act)
        self._drop_lost(keys, kept)
        # Claimed by a COMMIT whose reply was lost: nobody runs it, so it goes back.
        for row in strays(held, keys, self.endings):
            log.event("task.stray", level="warning", task=row.task_id, worker=self.id)
            self._give_back([row])

    def _look_for_revoked(self) -> None:
        keys = self._keys()
        with self.db.read() as conn:
            kept = settle.still_held(conn, keys)
        self._drop_lost(keys, kept)

    def _drop_lost(self, keys: list[tuple[int, int]], kept: set[int]) -> None:
        """Kill what was revoked: its end will be refused anyway."""
        lost = {key for key in keys if key[0] not in kept}
        for key in lost & set(self.held):
            # It may have settled itself a moment ago: then its child says so, and goes on.
            if key not in self.asked and self.children.revoke(*key):
                self.asked.add(key)
                log.event("task.revoked", task=key[0], fence=key[1], worker=self.id)
        self.backlog.drop(lost)
