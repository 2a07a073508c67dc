"""Wakes the workers of this home within a millisecond, by a datagram to the socket of each.

A lost datagram costs one poll interval, never a job. On PostgreSQL, NOTIFY wakes workers on
other machines.
"""

import contextlib
import functools
import hashlib
import os
import socket
import tempfile
from pathlib import Path

from quire.home import make_folder

#: UNIX socket paths are limited to 104 (macOS) or 108 bytes.
_MAX_PATH = 90


@functools.cache
def run_folder(home: Path) -> Path:
    """Return the folder for the locks and sockets of this home; always on this host."""
    inside = home / "run"
    if len(os.fsencode(inside)) <= _MAX_PATH - 20:
        return inside
    name = hashlib.blake2b(os.fsencode(home), digest_size=6).hexdigest()
    return Path(tempfile.gettempdir()) / f"quire-{os.getuid()}" / name


def listen(home: Path, worker_id: str) -> socket.socket:
    """Open the non-blocking socket on which a worker is woken."""
    folder = run_folder(home)
    make_folder(folder)
    path = folder / f"{worker_id}.s"
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.setblocking(False)
    sock.bind(str(path))
    return sock


def remove_socket(home: Path, worker_id: str) -> None:
    """Remove the socket file of a worker."""
    (run_folder(home) / f"{worker_id}.s").unlink(missing_ok=True)


def clear(sock: socket.socket) -> None:
    """Read all datagrams that have arrived."""
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.recv(16)


def wake(home: Path) -> None:
    """Wake all workers and dispatchers of this home."""
    folder = run_folder(home)
    try:
        names = [entry.path for entry in os.scandir(folder) if entry.name.endswith(".s")]
    except OSError:
        return
    if not names:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        for name in names:
            # The worker is dead, or its buffer is full of datagrams already.
            with contextlib.suppress(OSError):
                sender.sendto(b"!", name)
