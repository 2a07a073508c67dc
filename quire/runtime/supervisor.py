"""`quire up`: starts the API, the scheduler and workers as processes and restarts them.

It runs no user code and holds no lease. Its processes read a pipe that closes when it ends: if it
is killed, they drain and exit, so the next `quire up` finds none of them.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from quire import log
from quire.errors import SchemaAhead
from quire.runtime.signals import PARENT_FD, SignalWatch
from quire.settings import Settings

MIN_DELAY, MAX_DELAY = 0.1, 5.0
#: A process that ran for this long is restarted without a delay.
STEADY_SECONDS = 10.0


class ManagedProcess:
    """A process that the supervisor keeps running."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.arguments = arguments
        self.popen: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        self.delay = 0.0
        self.is_outdated = False

    def start(self, parent_fd: int) -> None:
        """Start it with the read end of the parent pipe."""
        self.popen = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", "quire", *self.arguments],
            env={**os.environ, PARENT_FD: str(parent_fd)},
            pass_fds=[parent_fd],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must reach the supervisor only
        )
        self.started_at = time.monotonic()
        log.event("process.started", name=self.name, pid=self.popen.pid)

    def poll(self, *, is_wanted: bool = True) -> None:
        """Notice its exit, and schedule a restart if it is still wanted."""
        if self.popen is None or self.popen.poll() is None:
            return
        code, self.popen = self.popen.returncode, None
        self.is_outdated = code == SchemaAhead.exit_code
        now = time.monotonic()
        if now - self.started_at > STEADY_SECONDS:
            self.delay = 0.0
        else:
            self.delay = min(max(self.delay * 2, MIN_DELAY), MAX_DELAY)
        self.start_at = now + self.delay
        if not is_wanted:
            log.event("process.left", name=self.name, code=code)
            return
        log.event(
            "process.ended", level="warning", name=self.name, code=code,
            again_in=f"{self.delay:g} s",
        )  # fmt: skip


def run(settings: Settings, *, worker_count: int = 1, with_api: bool = True) -> int:
    """Keep everything running until told to stop; returns the exit code."""
    processes = [ManagedProcess("api", ["api"])] if with_api else []
    processes.append(ManagedProcess("scheduler", ["scheduler"]))
    processes += [ManagedProcess(f"worker {n + 1}", ["worker"]) for n in range(worker_count)]
    selector = selectors.DefaultSelector()
    signals = SignalWatch(selector, signal.SIGCHLD)
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, False)
    export(settings)
    log.event("up", home=settings.home, pid=os.getpid())
    while not signals.stop_requests:
        wait = _keep_running(processes, read_end)
        if any(each.is_outdated for each in processes):
            signals.stop_requests += 1  # the database needs a newer Quire; nothing here can go on
            break
        selector.select(wait)
        signals.clear()
    _shut_down(processes, selector, signals)
    log.event("down")
    return SchemaAhead.exit_code if any(each.is_outdated for each in processes) else 0


def export(settings: Settings) -> None:
    """Put the effective settings into the environment of the processes to start."""
    from dataclasses import fields

    for each in fields(settings):
        value, name = getattr(settings, each.name), f"QUIRE_{each.name.upper()}"
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        # A value that was read from a file stays out of the environment.
        file = os.environ.get(f"{name}_FILE")
        if value != each.default and not (file and Path(file).read_text().strip() == text):
            os.environ.pop(f"{name}_FILE", None)
            os.environ[name] = text


def _keep_running(processes: Sequence[ManagedProcess], parent_fd: int) -> float | None:
    """Start what does not run; returns the seconds until the next start is due."""
    for each in processes:
        each.poll()
        if each.popen is None and not each.is_outdated and time.monotonic() >= each.start_at:
            each.start(parent_fd)
    _reap_orphans(processes)
    due = [each.start_at - time.monotonic() for each in processes if each.popen is None]
    return max(min(due), 0.0) if due else None


def _reap_orphans(processes: Sequence[ManagedProcess]) -> None:
    """Reap zombies that this process inherited.

    PID 1 of a container inherits every orphan, such as the children of a killed worker.
    """
    if not hasattr(os, "waitid"):
        return  # macOS before Python 3.13, where this is never PID 1
    own = {each.popen.pid for each in processes if each.popen is not None}
    with contextlib.suppress(ChildProcessError):
        # WNOWAIT: the exit code of a managed process must stay for its Popen.
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in own:
                return  # it has just ended; the next poll() reads its exit code
            os.waitpid(ended.si_pid, 0)


def _shut_down(
    processes: Sequence[ManagedProcess], selector: selectors.BaseSelector, signals: SignalWatch
) -> None:
    """Pass on each request to stop, and wait until all processes have exited."""
    log.event("draining")
    passed_on = 0
    while True:
        for each in processes:
            each.poll(is_wanted=False)
        _reap_orphans(processes)
        if not any(each.popen is not None for each in processes):
            return
        while passed_on < signals.stop_requests:
            passed_on += 1
            for each in processes:
                if each.popen is not None:
                    each.popen.terminate()
        selector.select(None)
        signals.clear()
