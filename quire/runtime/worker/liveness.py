"""Which workers are alive. On one host this is certain, without a timeout.

Each worker holds a lock on a file of its own while it lives. The kernel releases the lock with
the process, so whoever can take it knows that the worker is dead. Children do not inherit it.
Elsewhere only leases and heartbeats tell: two machines may have the same host name, and even the
same machine id.
"""

import contextlib
import fcntl
import os
import socket
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quire.clock import UNKNOWN_BOOT, boot_id, pid_start
from quire.home import make_folder
from quire.model.records import WorkerRow

if TYPE_CHECKING:
    from quire.store import Connection
    from quire.store.db.engine import Database


class Lock(NamedTuple):
    """A file lock that is held until the process ends."""

    path: Path
    fd: int

    def touch(self) -> None:
        """Update the file's modification time: the process not only lives but makes progress."""
        os.utime(self.fd)

    def release(self) -> None:
        """Release the lock and remove its file."""
        self.path.unlink(missing_ok=True)
        os.close(self.fd)


def hold(path: Path) -> Lock:
    """Take the lock that shows that this process is alive."""
    make_folder(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return Lock(path, fd)


def is_held(lock_path: str | Path) -> bool | None:
    """Tell whether a living process holds a lock; None if its file cannot be opened."""
    try:
        fd = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)


def host() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


@cache
def boot_and_namespace() -> str:
    """Identify this boot and PID namespace: locks and PIDs mean nothing outside of them."""
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return f"{boot_id()} {namespace}".strip()


def is_same_boot(worker: WorkerRow) -> bool:
    """Tell whether a worker certainly runs, or ran, on this boot of this machine."""
    return worker.boot_id.split(" ")[0] == boot_id() != UNKNOWN_BOOT


def is_dead(worker: WorkerRow) -> bool | None:
    """Tell whether a worker is certainly dead; None if that cannot be known here."""
    held = is_held(worker.lock_path)
    if held:
        return False
    if worker.boot_id != boot_and_namespace() or not is_same_boot(worker):
        return None
    return True if held is False else _has_pid_ended(worker)


def _has_pid_ended(worker: WorkerRow) -> bool | None:
    """Judge a worker whose lock file is gone: it exited cleanly, or its folder was removed."""
    if start := pid_start(worker.pid):
        return start != worker.pid_start if worker.pid_start else None
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return None  # it exists, but /proc is hidden: another process may have its PID


def is_alive(worker: WorkerRow, /, *, now: float, lease: float) -> bool:
    """Tell whether a worker is alive: by its lock if possible, else by its heartbeat."""
    dead = is_dead(worker)
    return now - worker.heartbeat_at <= lease if dead is None else not dead


def is_here(worker: WorkerRow) -> bool:
    """Tell whether a worker certainly lives on this machine, so that its PID can be used."""
    return worker.boot_id == boot_and_namespace() and is_dead(worker) is False


def alive(db: "Database", conn: "Connection") -> list[WorkerRow]:
    """List the workers that are alive."""
    from quire.store.queue import workers  # `quire status` does without SQLAlchemy

    now, lease = db.now(conn).wall, db.lease_seconds
    return [row for row in workers.live(conn) if is_alive(row, now=now, lease=lease)]
