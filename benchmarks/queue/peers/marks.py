"""The job that every queue runs, and what it leaves behind.

A job appends a line to one file with one write: kill -9 cannot take it back. Lines are counted
outside the queue, so they show what was lost or ran twice, whatever the queue says.
"""

import os
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks.queue.peers import given

STARTED, ENDED = "S", "E"
#: Length of a line, such as `E 00000042 1700000000.123456`.
_LENGTH = 29


class Mark(NamedTuple):
    """A job started or ended at a time."""

    what: str
    number: int
    at: float


def run(number: int, seconds: float) -> None:
    """Take `seconds`; a job of no length only leaves the mark of its end."""
    if seconds:
        _leave(STARTED, number)
        time.sleep(seconds)
    _leave(ENDED, number)


async def run_async(number: int, seconds: float) -> None:
    """Do the same without blocking an event loop."""
    import asyncio  # here: only some queues need it

    if seconds:
        _leave(STARTED, number)
        await asyncio.sleep(seconds)
    _leave(ENDED, number)


def _leave(what: str, number: int) -> None:
    os.write(_opened(), f"{what} {number:08d} {time.time():017.6f}\n".encode())


@cache
def _opened() -> int:
    return os.open(given.MARKS, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def count(file: Path) -> int:
    """Count the marks in a file."""
    return file.stat().st_size // _LENGTH if file.exists() else 0


def read(file: Path) -> Iterator[Mark]:
    """Read the marks in a file, in the order in which they were left."""
    text = file.read_text() if file.exists() else ""
    for line in text.splitlines():
        what, number, at = line.split()
        yield Mark(what, int(number), float(at))
