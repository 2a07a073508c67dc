"""Job kinds for the measurements. They report times by appending lines to a file of marks."""

import os
import time
from functools import cache

from quire.errors import Permanent
from quire.model.contracts import job
from quire.runtime.child.context import Context


@job("bench.noop")
def noop(ctx: Context, **payload: object) -> None:
    """Do nothing."""


@job("bench.fail")
def fail(ctx: Context, **payload: object) -> None:
    """Fail without a retry."""
    raise Permanent("fails on purpose, for the measurement")


@job("bench.wait")
def wait(ctx: Context, seconds: float) -> None:
    """Sleep, like a task that waits for another machine."""
    time.sleep(seconds)


@job("bench.mark")
def mark(ctx: Context, marks: str, name: str) -> None:
    """Report the time."""
    _report(marks, name)


@job("bench.hold")
def hold(ctx: Context, marks: str, name: str) -> None:
    """Run for long and ignore stops; a second run with the same name ends at once."""
    # Before the mark is written: its reader may kill this process the next moment.
    is_first = _is_first(marks, name)
    _report(marks, name)
    if is_first:
        time.sleep(600)


@job("bench.obey")
def obey(ctx: Context, marks: str, name: str) -> None:
    """Run until stopped, checking every millisecond; report the start and the end."""
    _report(marks, name)
    try:
        while True:
            ctx.check()
            time.sleep(0.001)
    finally:
        _report(marks, f"{name}.end")


def _report(marks: str, name: str) -> None:
    line = f"{name} {time.time():.6f} {os.getpid()}\n"
    os.write(_opened(marks), line.encode())


@cache
def _opened(marks: str) -> int:
    return os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_first(marks: str, name: str) -> bool:
    try:
        os.close(os.open(f"{marks}.{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True
