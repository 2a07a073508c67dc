"""The pool of warm children of one worker: hands out batches, enforces limits, buries the dead.

It has no thread and never waits for a child: the worker's selector wakes it, `serve` reads
what is there and `next_deadline` says when to come again. Each death becomes an outcome for the
task that ran; which one it was is read from the slate. Retries are decided elsewhere.
"""

import contextlib
import json
import os
import selectors
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from quire.clock import SystemClock
from quire.model.contracts import JobKind
from quire.runtime.child.limits import cause_of_death, limits
from quire.runtime.child.memory import OomWatch, rss_of, rss_of_tree
from quire.runtime.child.process import BUSY, IDLE, LEAVING, STARTING, Child, Doom, Head
from quire.runtime.child.wire import Assignment, BrokenMessage, Ended, Progress
from quire.settings import Settings

__all__ = ["Assignment", "Child", "Children", "Ended", "Progress"]

SAMPLE_AFTER = 0.2
SAMPLE_EVERY = 0.25
WEIGH_EVERY = 1.0
EXIT_WITHIN = 2.0
FIRST_DELAY = 0.1
LONGEST_DELAY = 5.0
POLL_EVERY = 0.05


def _elsewhere(*_: object, **__: object) -> None:
    raise AssertionError("a worker runs no handler; its children do")


class Children:
    """`concurrency` children, replaced when they die, have run `max_tasks` or hold `max_rss`."""

    def __init__(
        self,
        *,
        concurrency: int,
        plugins: Sequence[str],
        selector: selectors.BaseSelector,
        scratch: Path,
        max_tasks: int,
        max_rss: int,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.trouble: deque[str] = deque(maxlen=32)
        #: What the children can run, as the first of them said; the worker loads no plugin.
        self.kinds: dict[str, JobKind] = {}
        self.failures = 0
        self._concurrency = concurrency
        self._max_tasks = max_tasks
        self._max_rss = max_rss
        self._config = {
            "plugins": list(plugins),
            "scratch": str(scratch),
            "settings": dict(settings or {}),
            "sys_path": sys.path,
            "python_path": os.environ.get("PYTHONPATH"),
        }
        self._live: list[Child] = []
        self._ended: list[Ended] = []
        self._progress: list[Progress] = []
        self._is_draining = True
        self._now = 0.0
        self._spawn_at = 0.0
        self._delay = 0.0
        self._oom = OomWatch()
        # A selector of its own inside the worker's: one wake-up tells which children to read.
        self._ready = selectors.DefaultSelector()
        self._outer = selector
        selector.register(self._ready, selectors.EVENT_READ, self)

    @classmethod
    def of(
        cls,
        settings: Settings,
        worker_id: str,
        selector: selectors.BaseSelector,
        scratch: Path,
        *,
        concurrency: int,
    ) -> "Children":
        """Make the children of a worker, as the settings say."""
        return cls(
            concurrency=concurrency,
            plugins=settings.plugins,
            selector=selector,
            scratch=scratch,
            max_tasks=settings.child_max_tasks,
            max_rss=settings.child_max_rss,
            settings={**settings.for_children, "worker_id": worker_id},
        )

    def start(self) -> None:
        """Spawn all children; each becomes idle when it has loaded the plugins."""
        self._is_draining = False
        self._spawn_missing()

    def idle(self) -> list[Child]:
        """Return the children that can be handed a batch."""
        return [child for child in self._live if child.state == IDLE]

    @property
    def alive(self) -> int:
        """How many children exist, in any state."""
        return len(self._live)

    def hand(self, child: Child, assignments: Sequence[Assignment]) -> None:
        """Send a batch to an idle child; the time of each task starts when the child begins it."""
        child.hand(assignments)
        self._watch_connection(child)

    def assigned(self) -> Iterator[tuple[Child, Assignment]]:
        """Yield what was handed out and has neither ended nor been taken back."""
        for child in self._live:
            for index in child.open.values():
                yield child, child.batch[index]

    def begun_after(self, moment: float) -> int:
        """Count the children whose running task began after a moment of the monotonic clock."""
        heads = (child.head() for child in self._live)
        return sum(head is not None and head.started > moment for head in heads)

    def take_back(self, child: Child) -> list[Assignment]:
        """Return the child's tasks that have not begun, which it then never begins.

        Those that were revoked before are not returned: `serve` reports them as revoked.
        """
        kept: list[Assignment] = []
        for index, task in child.take_rest():
            if index in child.revoked:
                self._ended.append(Ended(task.task_id, task.fence, "revoked"))
            else:
                kept.append(task)
        return kept

    def revoke(self, task_id: int, fence: int) -> bool:
        """Stop a task: it is skipped if it has not begun, else killed after its grace."""
        for child in self._live:
            index = child.open.get((task_id, fence))
            if index is not None:
                child.slate.revoke(index)
                child.revoked.setdefault(index, None)
                return True
        return False

    def serve(self, now: float) -> tuple[list[Ended], list[Progress]]:
        """Read, bury, enforce, respawn; return what ended and progressed since the last call."""
        self._now = now
        self._oom.look(now)
        for key, mask in self._ready.select(0):
            child, fd = key.data, key.fd
            if not child.is_buried:
                self._attend(child, fd, mask)
        for child in list(self._live):
            self._enforce(child)
        self._spawn_missing()
        ended, self._ended = self._ended, []
        progress, self._progress = self._progress, []
        return ended, progress

    def next_deadline(self, now: float) -> float | None:
        """Return when `serve` must run again even if nothing becomes readable."""
        if self._ended or self._progress:
            return now
        times = [time for child in self._live for time in self._times(child, now)]
        if self._missing() > 0:
            times.append(self._spawn_at)
        return min(times, default=None)

    def drain(self) -> None:
        """Let each child exit when its batch has ended, and replace none."""
        self._is_draining = True
        for child in self.idle():
            self._retire(child)

    def kill_all(self) -> list[Ended]:
        """Kill every child with its group, wait for them, and return what ended by that."""
        self._is_draining = True
        for child in self._live:
            child.doom = child.doom or Doom(None, "revoked", "the worker ended its children")
            child.kill()
        for child in list(self._live):
            self._bury(child)
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """Kill what is left and let go of the selector."""
        self.kill_all()
        self._outer.unregister(self._ready)
        self._ready.close()

    def _spawn_missing(self) -> None:
        while self._missing() > 0 and self._now >= self._spawn_at:
            try:
                child = Child(self._config)
            except OSError as error:
                self._note_failure(f"a child could not be started: {error}")
                return
            self._live.append(child)
            self._ready.register(child.output, selectors.EVENT_READ, child)
            self._ready.register(child.connection, selectors.EVENT_READ, child)
            if child.pidfd is not None:
                self._ready.register(child.pidfd, selectors.EVENT_READ, child)

    def _missing(self) -> int:
        if self._is_draining:
            return 0
        return self._concurrency - sum(child.state != LEAVING for child in self._live)

    def _note_failure(self, text: str) -> None:
        self.trouble.append(text)
        self.failures += 1
        # Several that fail in one round, as with a broken plugin, lengthen the delay once.
        if self._now >= self._spawn_at:
            self._delay = min(max(FIRST_DELAY, self._delay * 2), LONGEST_DELAY)
            self._spawn_at = self._now + self._delay

    def _watch_connection(self, child: Child) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.is_sending else 0)
        if self._ready.get_key(child.connection).events != wanted:
            self._ready.modify(child.connection, wanted, child)

    def _attend(self, child: Child, fd: int, mask: int) -> None:
        if fd == child.pidfd:
            self._bury(child)
        elif fd == child.output:
            if not child.read_output():
                self._ready.unregister(child.output)
        else:
            if mask & selectors.EVENT_WRITE:
                child.send_more()
                self._watch_connection(child)
            if mask & selectors.EVENT_READ:
                self._read(child)

    def _read(self, child: Child) -> None:
        try:
            messages = child.receive()
        except BrokenMessage as error:
            self._kill(child, Doom(None, "crashed", f"the child sent {error}"))
            child.is_cut_off = True
            messages = []
        for message in messages:
            self._hear(child, message)
        if child.is_cut_off:
            # It is about to exit, or its handler closed what it did not open.
            self._ready.unregister(child.connection)
            child.end_by = min(child.end_by or self._now + EXIT_WITHIN, self._now + EXIT_WITHIN)

    def _hear(self, child: Child, message: dict[str, Any]) -> None:
        if "ready" in message and child.state == STARTING:
            child.state = IDLE
            self._delay = 0.0
            self.kinds = {k["name"]: JobKind(function=_elsewhere, **k) for k in message["kinds"]}
        self._progress += map(Progress._make, message.get("progress", ()))
        self._settle(child, message.get("ended", ()))
        if message.get("idle") == child.batch_number and child.state == BUSY:
            child.state = IDLE
        if child.state == IDLE and (self._is_draining or self._is_worn(child)):
            self._retire(child)

    def _settle(self, child: Child, rows: Iterable[list[Any]]) -> None:
        for row in rows:
            index = child.open.pop((row[0], row[1]), None)
            if index is None:
                continue
            child.runs += 1
            if row[9] is not None and child.peak[0] == index:
                row[9] = max(row[9], child.peak[1])
            self._ended.append(Ended._make(row))

    def _is_worn(self, child: Child) -> bool:
        if self._max_tasks and child.runs >= self._max_tasks:
            return True
        if not self._max_rss or self._now < child.weigh_at:
            return False
        child.weigh_at = self._now + WEIGH_EVERY
        return rss_of(child.pid) > self._max_rss

    def _retire(self, child: Child) -> None:
        child.state = LEAVING
        child.end_by = self._now + EXIT_WITHIN
        child.send({"exit": True})
        self._watch_connection(child)

    def _kill(self, child: Child, doom: Doom) -> None:
        child.doom = child.doom or doom
        child.kill()

    def _times(self, child: Child, now: float) -> Iterator[float]:
        """Yield the moments at which something of this child must be looked at."""
        if child.end_by is not None:
            yield child.end_by
        if child.pidfd is None and child.is_cut_off:
            yield now + POLL_EVERY
        if child.state != BUSY or child.doom:
            return
        yield now + SAMPLE_AFTER if child.look_at is None else child.look_at
        if head := child.head():
            yield from (time for time, _ in limits(child, head, now))

    def _enforce(self, child: Child) -> None:
        if child.pidfd is None and child.is_cut_off and child.has_exited():
            self._bury(child)
            return
        if child.end_by is not None and self._now >= child.end_by:
            child.end_by = None
            self._kill(child, Doom(None, "crashed", "the child closed its connection"))
        if child.state != BUSY or child.doom:
            return
        for index, since in child.revoked.items():
            child.revoked[index] = self._now if since is None else since
        head = child.head()
        if head:
            due = [doom for at, doom in limits(child, head, self._now) if at <= self._now]
            if due:
                self._kill(child, due[0])
                return
        if child.look_at is None or self._now >= child.look_at:
            self._sample(child, head)

    def _sample(self, child: Child, head: Head | None) -> None:
        if head is None or self._now < head.started + SAMPLE_AFTER:
            child.look_at = (head.started if head else self._now) + SAMPLE_AFTER
            return
        child.look_at = self._now + SAMPLE_EVERY
        used = rss_of_tree(child.pid)
        child.peak = (head.place, max(used, child.peak[1] if child.peak[0] == head.place else 0))
        limit = head.task.memory
        if limit is not None and used > limit:
            text = f"used {used / 1e6:.0f} MB of memory (limit {limit / 1e6:.0f} MB)"
            self._kill(child, Doom(head.place, "memory", text))

    def _bury(self, child: Child) -> None:
        # The dead child is still a zombie here, so its group's number is not another's yet.
        child.kill()
        code = child.exit_code()
        if not child.is_cut_off:
            with contextlib.suppress(BrokenMessage):
                for message in child.receive_all():
                    self._hear(child, message)
        child.read_output()
        # A handler that wrote over the shared memory must not stop the worker.
        with contextlib.suppress(ValueError, TypeError, IndexError):
            self._settle(child, json.loads(b"[" + child.slate.kept() + b"]"))
        if child.state == STARTING and not self._is_draining:
            self._note_failure(f"a child ended before it was ready: {child.last_lines()}")
        self._conclude(child, code)
        for fd in (child.output, child.connection, child.pidfd):
            if fd is not None:
                with contextlib.suppress(KeyError):
                    self._ready.unregister(fd)
        child.is_buried = True
        self._live.remove(child)
        child.close()

    def _conclude(self, child: Child, code: int) -> None:
        """Give an outcome to what the dead child left open."""
        head = child.head()
        for key, index in child.open.items():
            if head is not None and index <= head.place:
                self._ended.append(self._death(child, head, key, code))
            else:
                outcome = "revoked" if index in child.revoked else "unstarted"
                self._ended.append(Ended(*key, outcome))
        child.open.clear()

    def _death(self, child: Child, head: Head, key: tuple[int, int], code: int) -> Ended:
        killed = code == -signal.SIGKILL and child.doom is None
        outcome, error = cause_of_death(child, head, code, killed and self._oom.has_struck())
        duration = max(self._now - head.started, 0.0)
        return Ended(
            *key,
            outcome,
            error=error,
            traceback=None if outcome == "revoked" else child.last_lines(),
            began_at=SystemClock().now().wall - duration,
            duration=duration,
            peak_rss=child.peak[1] if child.peak[0] == head.place else None,
        )
