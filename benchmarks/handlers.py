"""The job kinds that are measured. What has to be timed is told by one append to a file."""

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
    """Fail for good."""
    raise Permanent("fails because the measurement wants it to")


@job("bench.wait")
def wait(ctx: Context, seconds: float) -> None:
    """Wait, as a task does that asks another machine."""
    time.sleep(seconds)


@job("bench.mark")
def mark(ctx: Context, marks: str, name: str) -> None:
    """Tell when this ran."""
    _tell(marks, name)


@job("bench.hold")
def hold(ctx: Context, marks: str, name: str) -> None:
    """Run without end and without looking at stops; a second run of the same name ends at once."""
    # Before it tells: who reads the mark may kill this process the next moment.
    is_first = _is_first(marks, name)
    _tell(marks, name)
    if is_first:
        time.sleep(600)


@job("bench.obey")
def obey(ctx: Context, marks: str, name: str) -> None:
    """Run until told to stop, looking every millisecond; tell the begin and the end."""
    _tell(marks, name)
    try:
        while True:
            ctx.check()
            time.sleep(0.001)
    finally:
        _tell(marks, f"{name}.end")


def _tell(marks: str, name: str) -> None:
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
