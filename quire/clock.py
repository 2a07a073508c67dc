"""The clocks of stored times; tests replace them with a `FakeClock`.

There are two: `wall` is UTC and may jump; `lease` counts the seconds since boot in which the
machine was awake, and never jumps. Leases on SQLite are measured with the second one: all holders
sleep together, so none of them is late after a suspend.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

#: CLOCK_MONOTONIC stands still in sleep on Linux, but not on macOS.
_AWAKE = getattr(time, "CLOCK_UPTIME_RAW", time.CLOCK_MONOTONIC)
UNKNOWN_BOOT = "unknown"


class Instant(NamedTuple):
    """One moment on both clocks, in seconds."""

    wall: float
    lease: float


class Clock(Protocol):
    """A source of the time."""

    def now(self) -> Instant:
        """Read both clocks."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> Instant:
        """Read both clocks."""
        return Instant(time.time(), time.clock_gettime(_AWAKE))


class FakeClock:
    """A clock that moves only when told to."""

    def __init__(self, wall: float = 1_000_000.0, lease: float = 1_000.0) -> None:
        self._now = Instant(wall, lease)

    def now(self) -> Instant:
        """Return the current moment."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        self._now = Instant(self._now.wall + seconds, self._now.lease + seconds)

    def jump(self, seconds: float) -> None:
        """Move only the wall clock, as an operator or NTP may do."""
        self._now = Instant(self._now.wall + seconds, self._now.lease)


@cache
def boot_id() -> str:
    """Identify this boot of the machine, or return UNKNOWN_BOOT, as where /proc is hidden."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    if sys.platform == "darwin":
        import subprocess

        return subprocess.check_output(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], text=True
        ).strip()
    return UNKNOWN_BOOT


def pid_start(pid: int) -> str:
    """Return the start time of a process, which tells apart uses of its PID; '' if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


@cache
def own_pid_start() -> str:
    """Return the start time of this process."""
    return pid_start(os.getpid())


def iso(at: float | None) -> str | None:
    """Format a wall-clock time as ISO 8601 in UTC with milliseconds, as JSON answers show it."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat("T", "milliseconds")[:-6] + "Z"


def json_values(row: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return columns of a row as JSON answers show them: times, named `…_at`, as ISO 8601."""
    return {
        name: iso(getattr(row, name)) if name.endswith("_at") else getattr(row, name)
        for name in names
    }
