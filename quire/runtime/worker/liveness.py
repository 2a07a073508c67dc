"""Whether a worker lives: certain knowledge on one host, without a timeout.

Each worker holds a lock on a file of its own for as long as it lives; the kernel frees it with
the process, and whoever can take it knows. Its children do not inherit it.
"""

import contextlib
import fcntl
import os
import socket
from functools import cache
from pathlib import Path
from typing import NamedTuple

from quire.clock import boot_id, pid_start


class Lock(NamedTuple):
    """A lock that is held until the process ends."""

    path: Path
    fd: int

    def touch(self) -> None:
        """Say that the process not only lives, but goes on."""
        os.utime(self.fd)

    def release(self) -> None:
        """Let go, and remove the file: a worker that left in order leaves nothing."""
        self.path.unlink(missing_ok=True)
        os.close(self.fd)


def hold(path: Path) -> Lock:
    """Take the lock that says this process lives."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return Lock(path, fd)


def host() -> str:
    """Name this machine."""
    return socket.gethostname()


@cache
def place() -> str:
    """Name this boot and process-id namespace: elsewhere, locks and pids mean other things."""
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return f"{boot_id()} {namespace}".strip()


def is_dead(lock_path: str, host_name: str, where: str, pid: int, start: str) -> bool | None:
    """Tell whether a worker is dead; None where only its lease can tell."""
    if where != place():
        same_machine = host_name == host()
        rebooted = where.split(" ")[0] != boot_id()
        return True if same_machine and rebooted else None
    try:
        return not is_held(lock_path)
    except FileNotFoundError:
        # It left in order, or its folder is gone: the process id and its start time remain.
        return pid_start(pid) != start if start else None
    except OSError:
        return None


def is_held(lock_path: str | Path) -> bool:
    """Tell whether a living process holds a lock; raise OSError where it cannot be opened."""
    fd = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)
