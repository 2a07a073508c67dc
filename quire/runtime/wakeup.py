"""Wakes sleeping workers of this home within a millisecond: one datagram to each one's socket.

A lost datagram costs a poll interval, never a job. On PostgreSQL, NOTIFY does the same for
workers elsewhere.
"""

import contextlib
import hashlib
import os
import socket
import tempfile
from pathlib import Path

#: UNIX socket addresses end at 104 (macOS) or 108 bytes.
_LONGEST = 90


def run_folder(home: Path) -> Path:
    """Return the host-local folder of this home's locks and sockets."""
    inside = home / "run"
    if len(os.fsencode(inside)) <= _LONGEST - 20:
        return inside
    name = hashlib.blake2b(os.fsencode(home), digest_size=6).hexdigest()
    return Path(tempfile.gettempdir()) / f"quire-{os.getuid()}" / name


def listen(home: Path, worker_id: str) -> socket.socket:
    """Open the socket that rings reach; it is unblocking."""
    folder = run_folder(home)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{worker_id}.s"
    path.unlink(missing_ok=True)
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.setblocking(False)
    ear.bind(str(path))
    return ear


def hush(home: Path, worker_id: str) -> None:
    """Remove a worker's socket."""
    (run_folder(home) / f"{worker_id}.s").unlink(missing_ok=True)


def heard(ear: socket.socket) -> None:
    """Take every ring that has arrived."""
    with contextlib.suppress(BlockingIOError):
        while True:
            ear.recv(16)


def ring(home: Path) -> None:
    """Tell this home's workers to look again."""
    folder = run_folder(home)
    try:
        names = [entry.path for entry in os.scandir(folder) if entry.name.endswith(".s")]
    except OSError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.setblocking(False)
        for name in names:
            # Nobody listens (dead worker), or its buffer is full of rings already.
            with contextlib.suppress(OSError):
                bell.sendto(b"!", name)
