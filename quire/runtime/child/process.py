"""One child process as its parent sees it: its pipes, its batch, its last words.

Nothing here waits or decides; the pool in `children.py` says when to read, to kill, to bury.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quire.runtime.child.shared_memory import BATCH_LIMIT, Slate, Turnstile, make_memory
from quire.runtime.child.wire import Assignment, Inbox, pack, printable

TAIL = 64 * 1024
STARTING, IDLE, BUSY, LEAVING = "starting", "idle", "busy", "leaving"

_ROOT = str(Path(__file__).parents[3])
_CHUNK = 1 << 18
_LAST_LINES = 20
_DEATH_WITHIN = 5.0


class Head(NamedTuple):
    """The task that a child runs now: its place in the batch, its start in monotonic seconds."""

    place: int
    task: Assignment
    started: float


class Doom(NamedTuple):
    """Why the parent killed a child: for the task at which place (None: any), and the words."""

    place: int | None
    outcome: str
    error: str


class Child:
    """A spawned child and what it was handed."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.state = STARTING
        self.batch: list[Assignment] = []
        self.batch_number = 0
        self.open: dict[tuple[int, int], int] = {}
        self.revoked: dict[int, float | None] = {}
        self.doom: Doom | None = None
        self.runs = 0
        self.peak = (-1, 0)
        self.look_at: float | None = None
        self.weigh_at = 0.0
        self.end_by: float | None = None
        self.is_buried = False
        self.is_cut_off = False
        self._inbox = Inbox()
        self._outgoing = bytearray()
        self._tail = bytearray()
        self._written = 0
        self._written_before = 0
        self._spawn()
        self.send({"config": config})

    def _spawn(self) -> None:
        with contextlib.ExitStack() as passed, contextlib.ExitStack() as kept:
            memory = _closed_by(passed, make_memory())
            self.slate = Slate(memory)
            kept.callback(self.slate.close)
            self.connection, link = socket.socketpair()
            kept.callback(self.connection.close)
            passed.callback(link.close)
            self.output, output = os.pipe()
            _closed_by(kept, self.output)
            _closed_by(passed, output)
            # Held and never written to: its closing tells the child that the parent is gone.
            leash, held = os.pipe()
            _closed_by(passed, leash)
            _closed_by(kept, held)
            turns, self._turns = os.pipe()
            _closed_by(kept, turns)
            _closed_by(kept, self._turns)
            for fd in (self.connection.fileno(), self.output, turns):
                os.set_blocking(fd, False)
            self._turnstile = Turnstile(turns)
            self._popen = _start((link.fileno(), memory, turns, leash), output)
            self.pid = self._popen.pid
            self.pidfd = _pidfd(self.pid)
            if self.pidfd is not None:
                _closed_by(kept, self.pidfd)
            self._kept = kept.pop_all()

    @property
    def tail(self) -> bytes:
        """The last 64 KiB that the child and its descendants printed."""
        return bytes(self._tail)

    @property
    def is_sending(self) -> bool:
        """Whether part of a message still waits for room in the socket."""
        return bool(self._outgoing)

    def last_lines(self) -> str | None:
        """Return the last lines printed since the hand-over, if any."""
        fresh = min(len(self._tail), self._written - self._written_before)
        text = self._tail[len(self._tail) - fresh :].decode(errors="replace")
        return printable("\n".join(text.splitlines()[-_LAST_LINES:])) or None

    def hand(self, assignments: Sequence[Assignment]) -> None:
        """Send a batch; the child must be idle."""
        if self.state != IDLE or not 0 < len(assignments) <= BATCH_LIMIT:
            raise ValueError(f"child {self.pid}: {len(assignments)} tasks for a {self.state} child")
        self.state = BUSY
        self.batch = list(assignments)
        self.open = {(task[0], task[1]): index for index, task in enumerate(assignments)}
        self.batch_number += 1
        self.revoked.clear()
        self.peak = (-1, 0)
        self.look_at = None
        self._written_before = self._written
        self.slate.clear()
        # Before the message: the child takes one byte for each task that it begins.
        os.write(self._turns, bytes(len(self.batch)))
        self.send({"batch": self.batch_number, "run": self.batch})

    def take_rest(self) -> list[tuple[int, Assignment]]:
        """Take the tasks that have not begun away from the child; none of them can begin now."""
        first = len(self.batch) - self._turnstile.take_rest()
        taken = [(index, self.batch[index]) for index in range(first, len(self.batch))]
        for _, task in taken:
            self.open.pop((task.task_id, task.fence), None)
        del self.batch[first:]
        return taken

    def head(self) -> Head | None:
        """Return the task that runs now, unless its end was reported."""
        running = self.slate.running()
        if running is None or running[0] >= len(self.batch):
            return None
        task = self.batch[running[0]]
        if (task.task_id, task.fence) not in self.open:
            return None
        return Head(running[0], task, running[1])

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message and send what the socket takes."""
        self._outgoing += pack(message)
        self.send_more()

    def send_more(self) -> None:
        """Send what the socket takes of the queued messages."""
        # A child that is gone is found by its exit; there is nobody to tell here.
        with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            while self._outgoing:
                del self._outgoing[: self.connection.send(self._outgoing)]

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages of one read; raise BrokenMessage on anything else."""
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
            chunk = self.connection.recv(_CHUNK)
        except BlockingIOError:
            return b""
        except ConnectionResetError:
            chunk = b""
        self.is_cut_off = not chunk
        return chunk

    def read_output(self, most: int = 16 * TAIL) -> bool:
        """Move what was printed into the tail; return False when nobody can print any more."""
        while most > 0:
            try:
                chunk = os.read(self.output, TAIL)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            most -= len(chunk)
            self._written += len(chunk)
            self._tail += chunk
            del self._tail[:-TAIL]
        return True

    def kill(self) -> None:
        """Kill the child and everything else in its process group."""
        # macOS refuses with EPERM when only zombies are left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def has_exited(self) -> bool:
        """Tell whether the child is dead; where possible it stays a zombie, so its id stays its."""
        if hasattr(os, "waitid"):
            look = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, look) is not None
        return self._popen.poll() is not None

    def exit_code(self) -> int:
        """Wait for the exit of a child that is dead or killed; minus the signal's number."""
        try:
            return self._popen.wait(_DEATH_WITHIN)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL

    def close(self) -> None:
        """Close every descriptor of the parent's side."""
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
    # The child puts PYTHONPATH back before a plugin is loaded; it is only for finding Quire.
    path = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(  # noqa: S603 (our own interpreter and module)
        [sys.executable, "-m", "quire.runtime.child.main", *map(str, fds), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=fds,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )
