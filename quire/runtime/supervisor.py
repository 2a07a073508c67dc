"""`quire up`: starts API, worker and scheduler as processes of their own and restarts them.

It runs no user code and holds no lease. Its processes hang on a pipe: if it is killed, they
drain and leave, so that the next `quire up` does not find strangers.
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
from quire.runtime.parent_pipe import VARIABLE
from quire.runtime.signals import Bell
from quire.settings import Settings

FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
#: A process that lived this long was started well; its next restart is immediate again.
STEADY = 10.0


class Charge:
    """One process that has to run."""

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        self.arguments = arguments
        self.running: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        self.delay = 0.0
        self.is_outdated = False

    def start(self, leash: int) -> None:
        """Start it; the read end of the leash goes with it."""
        self.running = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "quire", *self.arguments],
            env={**os.environ, VARIABLE: str(leash)},
            pass_fds=[leash],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches us alone, and we decide
        )
        self.started_at = time.monotonic()
        log.event("process.started", name=self.name, pid=self.running.pid)

    def look(self, *, is_wanted: bool = True) -> None:
        """Notice its end, and when to start it again if it is still wanted."""
        if self.running is None or self.running.poll() is None:
            return
        code, self.running = self.running.returncode, None
        self.is_outdated = code == SchemaAhead.exit_code
        lived = time.monotonic() - self.started_at
        self.delay = 0.0 if lived > STEADY else min(max(self.delay * 2, FIRST_DELAY), LONGEST_DELAY)
        self.start_at = time.monotonic() + self.delay
        if is_wanted:
            again_in = f"{self.delay:g} s"
            log.event(
                "process.ended", level="warning", name=self.name, code=code, again_in=again_in
            )
        else:
            log.event("process.left", name=self.name, code=code)

    def tell(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.running is not None:
            with contextlib.suppress(ProcessLookupError):
                self.running.send_signal(number)


def run(settings: Settings, *, worker_count: int = 1, with_api: bool = True) -> int:
    """Keep everything running until told to stop; returns the exit code."""
    charges = [Charge("api", ["api"])] if with_api else []
    charges.append(Charge("scheduler", ["scheduler"]))
    charges += [Charge(f"worker {n + 1}", ["worker"]) for n in range(worker_count)]
    selector = selectors.DefaultSelector()
    bell = Bell(selector, signal.SIGCHLD)
    inner, outer = os.pipe()
    os.set_inheritable(outer, False)
    export(settings)
    log.event("up", home=settings.home, pid=os.getpid())
    while not bell.rung:
        wait = _keep_running(charges, inner)
        if any(charge.is_outdated for charge in charges):
            bell.rung += 1  # the database needs a later Quire: nothing of this one can go on
            break
        selector.select(wait)
        bell.hear()
    _bring_down(charges, selector, bell)
    log.event("down")
    return SchemaAhead.exit_code if any(charge.is_outdated for charge in charges) else 0


def export(settings: Settings) -> None:
    """Hand the settings in force to the processes we start, whatever way they were given."""
    from dataclasses import fields

    for each in fields(settings):
        value, name = getattr(settings, each.name), f"QUIRE_{each.name.upper()}"
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        # What they read from a file themselves stays out of the environment.
        named = os.environ.get(f"{name}_FILE")
        if value != each.default and not (named and Path(named).read_text().strip() == text):
            os.environ.pop(f"{name}_FILE", None)
            os.environ[name] = text


def _keep_running(charges: Sequence[Charge], leash: int) -> float | None:
    """Start what does not run; returns the seconds until the next start is due."""
    for charge in charges:
        charge.look()
        if (
            charge.running is None
            and not charge.is_outdated
            and time.monotonic() >= charge.start_at
        ):
            charge.start(leash)
    _bury(charges)
    due = [c.start_at - time.monotonic() for c in charges if c.running is None]
    return max(min(due), 0.0) if due else None


def _bury(charges: Sequence[Charge]) -> None:
    """Take the exit codes of what our processes left behind.

    The first process of a container inherits every orphan, such as the children of a killed
    worker, and each would stay in the table of processes for as long as we run.
    """
    if not hasattr(os, "waitid"):
        return  # macOS before Python 3.13, where no container is
    own = {charge.running.pid for charge in charges if charge.running is not None}
    with contextlib.suppress(ChildProcessError):
        # We only look at first: the exit code of a process of ours belongs to its Popen.
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in own:
                return  # it ended just now; the next look takes it
            os.waitpid(ended.si_pid, 0)


def _bring_down(charges: Sequence[Charge], selector: selectors.BaseSelector, bell: Bell) -> None:
    """Pass each request to stop on, and wait for all to leave."""
    log.event("draining")
    passed = 0
    while True:
        for charge in charges:
            charge.look(is_wanted=False)
        _bury(charges)
        if not any(c.running is not None for c in charges):
            return
        while passed < bell.rung:
            passed += 1
            for charge in charges:
                charge.tell(signal.SIGTERM)
        selector.select(None)
        bell.hear()
