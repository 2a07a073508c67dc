"""The child processes of a worker: starts them, hands out batches, enforces limits.

There is no thread and nothing blocks: the worker's selector wakes it, `serve` reads what is there
and `next_deadline` says when to call again. A child that dies gives an outcome to the task that
ran, which shared memory names. Whether to retry is decided elsewhere (`quire.model.outcomes`).
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quire import log
from quire.model.contracts import JobKind
from quire.model.outcomes import Lease, Outcome, RunReport
from quire.runtime.child.channel import (
    MAX_BATCH,
    BrokenMessage,
    Inbox,
    Progress,
    SharedMemory,
    StartTokens,
    create_memory,
    pack,
    printable,
)
from quire.runtime.child.memory import OomWatch, rss_of, rss_of_tree

#: Memory of a running task is sampled after the first, then every second of these (seconds).
SAMPLE_AFTER, SAMPLE_EVERY = 0.2, 0.25
#: How often the memory of an idle child is checked.
RSS_EVERY = 1.0
#: Seconds that a child has to exit after it was told to, or after it closed its connection.
EXIT_SECONDS = 2.0
MIN_START_DELAY, MAX_START_DELAY = 0.1, 5.0
#: Seconds that a child may take to load its plugins; one that hangs would keep its place for ever.
START_SECONDS = 300.0
#: How often a disconnected child is polled on systems without pidfd.
POLL_EVERY = 0.05
#: Bytes of a child's output that are kept.
OUTPUT_TAIL = 64 * 1024

STARTING, IDLE, BUSY, LEAVING = "starting", "idle", "busy", "leaving"

_ROOT = str(Path(__file__).parents[3])
_READ_BYTES = 1 << 18
_LAST_LINES = 20
_KILL_SECONDS = 5.0
_EXTERNAL_SIGNALS = (
    signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT,
)  # fmt: skip
#: A child killed at this share of its memory limit is taken to be out of memory.
_NEAR_LIMIT = 0.9


def _not_in_worker(*_: object, **__: object) -> None:
    raise AssertionError("a worker runs no handler; its children do")


_UNLIMITED = JobKind("", function=_not_in_worker, timeout=None)


class RunningTask(NamedTuple):
    """The task that a child runs: its position in the batch, its start in monotonic seconds."""

    position: int
    lease: Lease
    started: float


class KillReason(NamedTuple):
    """Why the worker killed a child; `position` is None if not because of one task."""

    position: int | None
    outcome: Outcome
    error: str


class Child:
    """A child process as the worker sees it. It decides nothing; the pool does."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.state = STARTING
        self.batch: list[Lease] = []
        self.batch_number = 0
        #: Index in the batch of each task that has neither ended nor been taken back.
        self.unfinished: dict[tuple[int, int], int] = {}
        #: Revoked indexes, and since when `serve` knows about them.
        self.revoked: dict[int, float | None] = {}
        self.kill_reason: KillReason | None = None
        self.runs = 0
        #: Index in the batch and its peak memory.
        self.peak = (-1, 0)
        self.sample_at: float | None = None
        self.check_rss_at = 0.0
        self.start_by: float | None = None
        self.exit_by: float | None = None
        self.is_reaped = False
        self.is_disconnected = False
        self._inbox = Inbox()
        #: What waits for space in the socket.
        self.outgoing = bytearray()
        #: The last 64 KiB that the child and its descendants printed.
        self.output_tail = bytearray()
        self._output_bytes = 0
        self._output_before_batch = 0
        self._spawn()
        self.send({"config": config})

    def _spawn(self) -> None:
        with contextlib.ExitStack() as passed, contextlib.ExitStack() as kept:
            memory = _closed_by(passed, create_memory())
            self.memory = SharedMemory(memory)
            kept.callback(self.memory.close)
            self.connection, link = socket.socketpair()
            kept.callback(self.connection.close)
            passed.callback(link.close)
            self.output, output = os.pipe()
            _closed_by(kept, self.output)
            _closed_by(passed, output)
            # Never written to: it closes when this process ends, which tells the child.
            parent_pipe, held = os.pipe()
            _closed_by(passed, parent_pipe)
            _closed_by(kept, held)
            tokens, self._tokens_in = os.pipe()
            _closed_by(kept, tokens)
            _closed_by(kept, self._tokens_in)
            for fd in (self.connection.fileno(), self.output, tokens):
                os.set_blocking(fd, False)
            self._tokens = StartTokens(tokens)
            self._popen = _start((link.fileno(), memory, tokens, parent_pipe), output)
            self.pid = self._popen.pid
            self.pidfd = _pidfd(self.pid)
            if self.pidfd is not None:
                _closed_by(kept, self.pidfd)
            self._kept = kept.pop_all()

    def last_lines(self) -> str | None:
        """Return the last lines printed since the batch was assigned, if any."""
        fresh = self._output_bytes - self._output_before_batch
        text = self.output_tail[max(len(self.output_tail) - fresh, 0) :].decode(errors="replace")
        return printable("\n".join(text.splitlines()[-_LAST_LINES:])) or None

    def assign(self, leases: Sequence[Lease]) -> None:
        """Send a batch; the child must be idle."""
        if self.state != IDLE or not 0 < len(leases) <= MAX_BATCH:
            raise ValueError(f"child {self.pid}: {len(leases)} tasks for a {self.state} child")
        self.state = BUSY
        self.batch = list(leases)
        self.unfinished = {(lease[0], lease[1]): index for index, lease in enumerate(leases)}
        self.batch_number += 1
        self.revoked.clear()
        self.peak = (-1, 0)
        self.sample_at = None
        self._output_before_batch = self._output_bytes
        self.memory.clear()
        # Before the message: the child takes one token for each task that it starts.
        os.write(self._tokens_in, bytes(len(self.batch)))
        self.send({"batch": self.batch_number, "run": self.batch})

    def take_unstarted(self) -> list[tuple[int, Lease]]:
        """Take back the tasks that have not started; none of them can start any more."""
        first = len(self.batch) - self._tokens.take_all()
        taken = [(index, self.batch[index]) for index in range(first, len(self.batch))]
        for _, lease in taken:
            self.unfinished.pop(lease.key, None)
        del self.batch[first:]
        return taken

    def running(self) -> RunningTask | None:
        """Return the task that runs now, unless its end was reported."""
        running = self.memory.running()
        if running is None or running[0] >= len(self.batch):
            return None
        index, started = running
        lease = self.batch[index]
        if lease.key not in self.unfinished:
            return None
        return RunningTask(index, lease, started)

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message and send what the socket accepts."""
        self.outgoing += pack(message)
        self.send_more()

    def send_more(self) -> None:
        """Send what the socket accepts of the queued messages."""
        # The exit of a child is noticed elsewhere.
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self.outgoing:
                del self.outgoing[: self.connection.send(self.outgoing)]

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages of one read; raise BrokenMessage for anything else."""
        chunk = self._read()
        return self._inbox.feed(chunk) if chunk else []

    def receive_all(self) -> list[dict[str, Any]]:
        """Return what a dead child sent before its end."""
        messages: list[dict[str, Any]] = []
        while chunk := self._read():
            messages += self._inbox.feed(chunk)
        return messages

    def _read(self) -> bytes:
        try:
            chunk = self.connection.recv(_READ_BYTES)
        except BlockingIOError:
            return b""
        except ConnectionResetError:
            chunk = b""
        self.is_disconnected = not chunk
        return chunk

    def read_output(self, limit: int = 16 * OUTPUT_TAIL) -> bool:
        """Read what was printed; return False when all writers have closed the pipe."""
        while limit > 0:
            try:
                chunk = os.read(self.output, OUTPUT_TAIL)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            limit -= len(chunk)
            self._output_bytes += len(chunk)
            self.output_tail += chunk
            del self.output_tail[:-OUTPUT_TAIL]
        return True

    def kill(self) -> None:
        """Kill the child and everything else in its process group."""
        # macOS raises EPERM when only zombies are left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def has_exited(self) -> bool:
        """Tell whether the child is dead; it stays a zombie if possible, so its PID stays taken."""
        if hasattr(os, "waitid"):
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, options) is not None
        return self._popen.poll() is not None

    def exit_code(self) -> int:
        """Wait for a child that is dead or killed; a signal is returned as a negative number."""
        try:
            return self._popen.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL

    def close(self) -> None:
        """Close every descriptor of the worker's side."""
        self._kept.close()


def _closed_by(stack: contextlib.ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def _pidfd(pid: int) -> int | None:
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _start(fds: tuple[int, ...], output: int) -> "subprocess.Popen[bytes]":
    # PYTHONPATH lets the child find Quire; the child restores it before it loads plugins.
    path = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(  # noqa: S603 (our own interpreter and module)
        [sys.executable, "-P", "-m", "quire.runtime.child.main", *map(str, fds), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=fds,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )


class ChildPool:
    """`concurrency` children, replaced when they die, have run `max_tasks` or exceed `max_rss`."""

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
        #: Why children failed to start, latest last.
        self.start_errors: deque[str] = deque(maxlen=32)
        self.failed_starts = 0
        #: The kinds that the first child reported; the worker loads no plugin.
        self.kinds: dict[str, JobKind] = {}
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
        self._children: list[Child] = []
        self._reports: list[RunReport] = []
        self._progress: list[Progress] = []
        self._is_draining = True
        self._now = 0.0
        self._start_at = 0.0
        self._start_delay = 0.0
        self._oom = OomWatch()
        # Nested in the worker's selector: one wake-up tells which children to read.
        self._ready = selectors.DefaultSelector()
        self._outer = selector
        selector.register(self._ready, selectors.EVENT_READ, self)

    def start(self) -> None:
        """Spawn all children; each becomes idle when it has loaded the plugins."""
        self._is_draining = False
        self._spawn_missing()

    def idle(self) -> list[Child]:
        """Return the children that can take a batch."""
        return [child for child in self._children if child.state == IDLE]

    @property
    def alive(self) -> int:
        """How many children exist, in any state."""
        return len(self._children)

    def assign(self, child: Child, leases: Sequence[Lease]) -> None:
        """Send a batch to an idle child; the time of each task starts when the child starts it."""
        child.assign(leases)
        self._watch_connection(child)

    def assigned(self) -> Iterator[tuple[Child, Lease]]:
        """Yield the leases that have neither ended nor been taken back."""
        for child in self._children:
            for index in child.unfinished.values():
                yield child, child.batch[index]

    def started_after(self, moment: float) -> int:
        """Count the children whose running task started after a monotonic time."""
        tasks = (child.running() for child in self._children)
        return sum(task is not None and task.started > moment for task in tasks)

    def take_back(self, child: Child) -> list[Lease]:
        """Take back the tasks that have not started; they cannot start any more.

        Those that were revoked are not returned: `serve` reports them as revoked.
        """
        kept: list[Lease] = []
        for index, lease in child.take_unstarted():
            if index in child.revoked:
                self._reports.append(RunReport(lease.task_id, lease.fence, Outcome.REVOKED))
            else:
                kept.append(lease)
        return kept

    def revoke(self, task_id: int, fence: int) -> bool:
        """Stop a task: it is skipped if it has not started, else killed after its grace."""
        for child in self._children:
            index = child.unfinished.get((task_id, fence))
            if index is not None and not child.memory.is_settled(index):
                child.memory.revoke(index)
                child.revoked.setdefault(index, None)
                return True
        return False

    def serve(self, now: float) -> tuple[list[RunReport], list[Progress]]:
        """Read, reap, enforce limits, respawn; return the reports since the last call."""
        self._now = now
        self._oom.sample(now)
        for key, mask in self._ready.select(0):
            child, fd = key.data, key.fd
            if not child.is_reaped:
                self._attend(child, fd, mask)
        for child in list(self._children):
            self._enforce(child)
        self._spawn_missing()
        reports, self._reports = self._reports, []
        progress, self._progress = self._progress, []
        return reports, progress

    def next_deadline(self, now: float) -> float | None:
        """Return when `serve` must be called even if nothing becomes readable."""
        if self._reports or self._progress:
            return now
        times = [time for child in self._children for time in self._deadlines(child, now)]
        if self._missing() > 0:
            times.append(self._start_at)
        return min(times, default=None)

    def drain(self) -> None:
        """Let each child exit after its batch, and replace none."""
        self._is_draining = True
        for child in self.idle():
            self._retire(child)

    def kill_all(self) -> list[RunReport]:
        """Kill every child with its process group and return what ended by that."""
        self._is_draining = True
        reason = KillReason(None, Outcome.REVOKED, "the worker ended its children")
        for child in self._children:
            self._kill(child, reason)
        for child in list(self._children):
            self._reap(child)
        reports, self._reports = self._reports, []
        return reports

    def close(self) -> None:
        """Kill what is left and unregister from the selector."""
        self.kill_all()
        self._outer.unregister(self._ready)
        self._ready.close()

    def _spawn_missing(self) -> None:
        while self._missing() > 0 and self._now >= self._start_at:
            try:
                child = Child(self._config)
            except OSError as error:
                self._record_failed_start(f"a child could not be started: {error}")
                return
            self._children.append(child)
            self._ready.register(child.output, selectors.EVENT_READ, child)
            self._ready.register(child.connection, selectors.EVENT_READ, child)
            if child.pidfd is not None:
                self._ready.register(child.pidfd, selectors.EVENT_READ, child)

    def _missing(self) -> int:
        if self._is_draining:
            return 0
        return self._concurrency - sum(child.state != LEAVING for child in self._children)

    def _record_failed_start(self, text: str) -> None:
        self.start_errors.append(text)
        self.failed_starts += 1
        # Several failures at once, as with a broken plugin, increase the delay once.
        if self._now >= self._start_at:
            self._start_delay = min(max(MIN_START_DELAY, self._start_delay * 2), MAX_START_DELAY)
            self._start_at = self._now + self._start_delay

    def _watch_connection(self, child: Child) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.outgoing else 0)
        if self._ready.get_key(child.connection).events != wanted:
            self._ready.modify(child.connection, wanted, child)

    def _attend(self, child: Child, fd: int, mask: int) -> None:
        if fd == child.pidfd:
            self._reap(child)
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
            for message in child.receive():
                self._handle(child, message)
        except BrokenMessage as error:
            self._kill(child, KillReason(None, Outcome.CRASHED, f"the child sent {error}"))
            child.is_disconnected = True
        if child.is_disconnected:
            # It is about to exit, or its handler closed a descriptor that it did not open.
            self._ready.unregister(child.connection)
            exit_by = self._now + EXIT_SECONDS
            child.exit_by = min(child.exit_by or exit_by, exit_by)

    def _handle(self, child: Child, message: dict[str, Any]) -> None:
        if "ready" in message and child.state == STARTING:
            child.state = IDLE
            self._start_delay = 0.0
            if not self.kinds:
                kinds = message["kinds"]
                self.kinds = {k["name"]: JobKind(function=_not_in_worker, **k) for k in kinds}
        self._progress += map(Progress._make, message.get("progress", ()))
        self._record_reports(child, message.get("ended", ()))
        self._log(message.get("log", ()))
        if message.get("idle") == child.batch_number and child.state == BUSY:
            child.state = IDLE
        if child.state == IDLE and (self._is_draining or self._is_worn(child)):
            self._retire(child)

    def _log(self, rows: Iterable[list[Any]]) -> None:
        """Write the warnings and errors of a child into the log of this process."""
        for row in rows:
            try:
                level, name, fields = row
                told = {str(key): str(value) for key, value in fields.items() if key != "level"}
            except (AttributeError, TypeError, ValueError) as problem:
                raise BrokenMessage(f"an event that is none: {problem}") from problem
            log.event(str(name), level="error" if level == "error" else "warning", **told)

    def _record_reports(self, child: Child, rows: Iterable[list[Any]]) -> None:
        for row in rows:
            try:
                task_id, fence, outcome, result, error, trace, duration, retry_after, peak = row
                outcome = Outcome(outcome)
            except (TypeError, ValueError) as problem:
                raise BrokenMessage(f"a report that is none: {problem}") from problem
            index = child.unfinished.pop((task_id, fence), None)
            if index is None:
                continue
            child.runs += 1
            if peak is not None and child.peak[0] == index:
                peak = max(peak, child.peak[1])
            self._reports.append(
                RunReport(
                    task_id, fence, outcome, result, error, trace, duration, retry_after, peak
                )
            )

    def _is_worn(self, child: Child) -> bool:
        if self._max_tasks and child.runs >= self._max_tasks:
            return True
        if not self._max_rss or self._now < child.check_rss_at:
            return False
        child.check_rss_at = self._now + RSS_EVERY
        return rss_of(child.pid) > self._max_rss

    def _retire(self, child: Child) -> None:
        child.state = LEAVING
        child.exit_by = self._now + EXIT_SECONDS
        child.send({"exit": True})
        self._watch_connection(child)

    def _kill(self, child: Child, reason: KillReason) -> None:
        child.kill_reason = child.kill_reason or reason
        child.kill()

    def _limits(
        self, child: Child, task: RunningTask, now: float
    ) -> Iterator[tuple[float, KillReason]]:
        """Yield when the running task exceeds which limit; the first reason that is due counts."""
        index, lease, started = task
        kind = self.kinds.get(lease.kind, _UNLIMITED)
        # The lease of a task that committed its end is over too; the rest of its handler may run.
        if index in child.revoked and not child.memory.is_settled(index):
            since = child.revoked[index]
            at = max(now if since is None else since, started) + kind.grace
            text = f"did not end within {kind.grace:g} s of the stop"
            yield at, KillReason(index, Outcome.REVOKED, text)
        if kind.timeout is not None:
            text = f"ran longer than its limit of {kind.timeout:g} s"
            yield started + kind.timeout, KillReason(index, Outcome.TIMEOUT, text)
        if kind.stall_timeout is not None:
            at = max(started, child.memory.progress_at()) + kind.stall_timeout
            text = f"made no progress for {kind.stall_timeout:g} s"
            yield at, KillReason(index, Outcome.STALLED, text)

    def _deadlines(self, child: Child, now: float) -> Iterator[float]:
        """Yield when something about this child must be checked."""
        if child.exit_by is not None:
            yield child.exit_by
        if child.state == STARTING and child.start_by is not None and not child.kill_reason:
            yield child.start_by
        if child.pidfd is None and child.is_disconnected:
            yield now + POLL_EVERY
        if child.state != BUSY or child.kill_reason:
            return
        yield now + SAMPLE_AFTER if child.sample_at is None else child.sample_at
        if task := child.running():
            yield from (at for at, _ in self._limits(child, task, now))

    def _enforce(self, child: Child) -> None:
        if child.pidfd is None and child.is_disconnected and child.has_exited():
            self._reap(child)
            return
        if child.exit_by is not None and self._now >= child.exit_by:
            child.exit_by = None
            self._kill(child, KillReason(None, Outcome.CRASHED, "the child closed its connection"))
        if child.kill_reason:
            return
        if child.state == STARTING:
            self._enforce_start(child)
        elif child.state == BUSY:
            self._enforce_limits(child)

    def _enforce_limits(self, child: Child) -> None:
        for index, since in child.revoked.items():
            child.revoked[index] = self._now if since is None else since
        task = child.running()
        if task:
            due = [why for at, why in self._limits(child, task, self._now) if at <= self._now]
            if due:
                self._kill(child, due[0])
                return
        if child.sample_at is None or self._now >= child.sample_at:
            self._sample_memory(child, task)

    def _enforce_start(self, child: Child) -> None:
        if child.start_by is None:
            child.start_by = self._now + START_SECONDS
        elif self._now >= child.start_by:
            text = f"it was not ready within {START_SECONDS:g} s"
            self._kill(child, KillReason(None, Outcome.CRASHED, text))

    def _sample_memory(self, child: Child, task: RunningTask | None) -> None:
        if task is None or self._now < task.started + SAMPLE_AFTER:
            child.sample_at = (task.started if task else self._now) + SAMPLE_AFTER
            return
        child.sample_at = self._now + SAMPLE_EVERY
        used = rss_of_tree(child.pid)
        before = child.peak[1] if child.peak[0] == task.position else 0
        child.peak = (task.position, max(used, before))
        limit = self.kinds.get(task.lease.kind, _UNLIMITED).memory
        if limit is not None and used > limit:
            text = f"used {used / 1e6:.0f} MB of memory (limit {limit / 1e6:.0f} MB)"
            self._kill(child, KillReason(task.position, Outcome.MEMORY, text))

    def _reap(self, child: Child) -> None:
        # The dead child is still a zombie, so the number of its group is not reused yet.
        child.kill()
        code = child.exit_code()
        if not child.is_disconnected:
            with contextlib.suppress(BrokenMessage):
                for message in child.receive_all():
                    self._handle(child, message)
        child.read_output()
        # A handler that overwrote the shared memory must not stop the worker.
        with contextlib.suppress(BrokenMessage, ValueError, TypeError, IndexError):
            self._record_reports(child, json.loads(b"[" + child.memory.reports() + b"]"))
        if child.state == STARTING and not self._is_draining:
            why = child.kill_reason.error if child.kill_reason else child.last_lines()
            self._record_failed_start(f"a child ended before it was ready: {why}")
        self._end_unfinished(child, code)
        for fd in (child.output, child.connection, child.pidfd):
            if fd is not None:
                with contextlib.suppress(KeyError):
                    self._ready.unregister(fd)
        child.is_reaped = True
        # What it could not remove itself; its box was killed with it.
        scratch = Path(str(self._config["scratch"]))
        shutil.rmtree(scratch / f"box-{child.pid}", ignore_errors=True)
        self._children.remove(child)
        child.close()

    def _end_unfinished(self, child: Child, code: int) -> None:
        """Report an outcome for every unfinished task of a dead child."""
        task = child.running()
        for key, index in child.unfinished.items():
            if child.memory.is_settled(index):
                self._reports.append(RunReport(*key, Outcome.SETTLED))
            elif task is not None and index <= task.position:
                self._reports.append(self._report_death(child, task, key, code))
            else:
                outcome = Outcome.REVOKED if index in child.revoked else Outcome.UNSTARTED
                self._reports.append(RunReport(*key, outcome))
        child.unfinished.clear()

    def _report_death(
        self, child: Child, task: RunningTask, key: tuple[int, int], code: int
    ) -> RunReport:
        is_unexplained = code == -signal.SIGKILL and child.kill_reason is None
        peak = child.peak[1] if child.peak[0] == task.position else None
        limit = self.kinds.get(task.lease.kind, _UNLIMITED).memory
        is_near_limit = limit is not None and (peak or 0) > _NEAR_LIMIT * limit
        is_oom = is_unexplained and (self._oom.explain_kill() or is_near_limit)
        outcome, error = cause_of_death(child.kill_reason, task.position, code, is_oom=is_oom)
        return RunReport(
            *key,
            outcome,
            error=error,
            traceback=None if outcome == Outcome.REVOKED else child.last_lines(),
            duration=max(self._now - task.started, 0.0),
            peak_rss=peak,
        )


def cause_of_death(
    reason: KillReason | None, position: int, code: int, *, is_oom: bool
) -> tuple[Outcome, str]:
    """Return the outcome and error of the task at `position` that ran when its child died.

    A kill by the worker has its own reason. A signal that others send does not count as an
    attempt; everything else is a crash of the task.
    """
    if reason and reason.position in (None, position):
        return reason.outcome, reason.error
    if reason:
        return Outcome.DIED, "killed with the task before it, which ended at the same moment"
    if code >= 0:
        return Outcome.CRASHED, f"the child exited with code {code}"
    if is_oom:
        return Outcome.MEMORY, "killed by SIGKILL: out of memory"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    if -code in _EXTERNAL_SIGNALS:
        return Outcome.DIED, f"killed by {name} from outside"
    return Outcome.CRASHED, f"killed by {name}"
