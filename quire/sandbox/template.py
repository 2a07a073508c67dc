"""The process from which boxes are forked: it has loaded the parsers and read no stranger's file.

`python -m quire.sandbox.template FD MODULE` takes orders on a socket and forks one box at a time.
Starting Python and loading the parsers takes a third of a second, a fork a few milliseconds: so a
box can be thrown away when the next file belongs to somebody else. MODULE has `preload()` and
`handle(request, folder, ask)`, which yields the answers to a request.
"""

import contextlib
import faulthandler
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from quire.sandbox import confine
from quire.sandbox.messages import READ_BYTES, Decoder, Message, encode, write

#: Answers are sent in bulk, at the latest after so many seconds or bytes.
SEND_EVERY = 0.02
SEND_BYTES = 64 << 10
#: Seconds between two looks for the end of a box, where the kernel cannot wake us.
_POLL = 0.05

Ask = Callable[[dict[str, Any]], dict[str, Any]]
Handle = Callable[[dict[str, Any], Path, Ask], Iterator[Message]]


def main() -> None:
    """Fork boxes as ordered until the owner closes the socket."""
    control = socket.socket(fileno=int(sys.argv[1]))
    owner = int(sys.argv[3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ends = _ends(owner)
    if os.getppid() != owner:
        return
    faulthandler.enable()
    server = import_module(sys.argv[2])
    server.preload()
    gc.collect()
    gc.freeze()  # so that the collector copies no page that boxes share
    control.sendall(b'{"ready":true}\n')
    while order := _order(control, ends):
        head, fd = order
        if "open" in head and fd is not None:
            _run(control, ends, head["open"], fd, server.handle)


def _ends(owner: int) -> list[int]:
    """Return descriptors that become readable when the owner ends.

    Its socket alone does not tell: a process that the owner forked keeps a copy open. The kernel's
    death signal tells too much: it comes when the thread that started this process ends.
    """
    with contextlib.suppress(OSError, AttributeError):  # an old kernel; a system without it
        return [os.pidfd_open(owner)]
    return []


def _order(control: socket.socket, ends: list[int]) -> tuple[dict[str, Any], int | None] | None:
    watched: list[Any] = [control, *ends]
    ready, _, _ = select.select(watched, [], [])
    if control not in ready:
        return None
    lines, fds, _, _ = socket.recv_fds(control, 4096, 1)
    if not lines:
        return None
    # An order to kill a box that has just ended by itself may come before.
    return json.loads(lines.splitlines()[-1]), fds[0] if fds else None


def _run(
    control: socket.socket, ends: list[int], given: dict[str, Any], link: int, handle: Handle
) -> None:
    """Fork a box and report its end; kill it when told to."""
    pid = os.fork()
    if not pid:
        control.close()
        for each in ends:
            os.close(each)
        _live(given, link, handle)
    os.close(link)
    control.sendall(json.dumps({"pid": pid}).encode() + b"\n")
    pidfd = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    watched: list[Any] = [control, *ends] if pidfd is None else [control, *ends, pidfd]
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        ready, _, _ = select.select(watched, [], [], _POLL if pidfd is None else None)
        if control in ready or any(each in ready for each in ends):
            # Anything that comes now means: kill it.
            is_over = control not in ready or not control.recv(4096)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if is_over:
                os._exit(0)
    if pidfd is not None:
        os.close(pidfd)
    code = os.waitstatus_to_exitcode(ended[1])
    control.sendall(json.dumps({"exited": code}).encode() + b"\n")


def _live(given: dict[str, Any], link: int, handle: Handle) -> None:
    """Be a box: confine this process, then answer requests until its socket is closed."""
    try:
        folder = Path(given["folder"])
        limits = confine.Limits(**given["limits"])
        confine.confine(folder, limits, given["template"], is_whole=given["is_confined"])
        _serve(folder, link, handle)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class _Link:
    """The box's end of its connection."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._decoder = Decoder()
        self._received: list[Message] = []
        self._waiting = bytearray()
        self._sent_at = 0.0

    def receive(self) -> Message | None:
        while not self._received:
            chunk = os.read(self._fd, READ_BYTES)
            if not chunk:
                return None
            self._received = self._decoder.feed(chunk)
        return self._received.pop(0)

    def send(self, message: Message, *, now: bool = False) -> None:
        self._waiting += encode(message)
        is_due = time.monotonic() - self._sent_at > SEND_EVERY
        if now or is_due or len(self._waiting) > SEND_BYTES:
            write(self._fd, bytes(self._waiting))
            self._waiting.clear()
            self._sent_at = time.monotonic()

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        self.send(Message({"ask": question}), now=True)
        answer = self.receive()
        if answer is None:
            os._exit(0)
        return answer.head


def _serve(folder: Path, fd: int, handle: Handle) -> None:
    link = _Link(fd)
    while request := link.receive():
        link._sent_at = time.monotonic()
        try:
            for message in handle(request.head, folder, link.ask):
                link.send(message)
            end = Message({"end": True})
        except Exception as error:
            trace = "" if _is_plain(error) else traceback.format_exc()[-8000:]
            text = str(error)[:4000]
            end = Message({"error": [type(error).__name__, text, trace]})
        link.send(end, now=True)


def _is_plain(error: Exception) -> bool:
    """Tell whether an error is a sentence about the file, not a fault of the parser."""
    return type(error).__module__ == "quire.errors"


if __name__ == "__main__":
    main()
