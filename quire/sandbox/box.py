"""The owner's side of a box: opens one, asks it about a file, and notices how it ended.

A box serves one owner: before a file of another one is read, a new box replaces it. So a file that
takes its parser over finds nothing of anybody else in memory, and reads nothing that comes later.
The file is linked into the box's folder, the only one outside the installation that it can read.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from quire.errors import Transient
from quire.sandbox import confine
from quire.sandbox.messages import READ_BYTES, BrokenMessage, Decoder, Message, encode

#: Seconds for a template to load the parsers, and for a box to be opened or to end.
START_SECONDS = 120.0
#: Seconds of processor time after which a box is replaced, long before its limit ends it.
WORN_AFTER = confine.CPU_SECONDS / 4
#: How often the processor time of a box is looked at while it works.
LOOK_EVERY = 0.5

_ROOT = str(Path(__file__).parents[2])

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class BoxDied(Exception):
    """A box ended while it was asked; the code is that of `subprocess`: a signal is negative."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the reading process ended with {_described(code)}")
        self.code = code


class TookTooLong(Exception):
    """A box was ended because a request took more time than it may."""


class RemoteError(Exception):
    """What the code in a box raised."""

    def __init__(self, kind: str, text: str, trace: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.trace = trace


class Sandbox:
    """At most one box at a time, from a template that is started on first use.

    Not for several threads at once.
    """

    def __init__(
        self,
        server: str,
        folder: Path,
        *,
        limits: confine.Limits = confine.Limits(),  # noqa: B008 (immutable)
        quiet: bool = False,
        is_confined: bool = True,
    ) -> None:
        self._server = server
        self._folder = folder
        self._limits = limits
        self._quiet = quiet
        self._is_confined = is_confined
        self._template: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._told = b""
        self._link: socket.socket | None = None
        self._decoder = Decoder()
        self._owner = ""
        self._file: tuple[str, int, int, int] | None = None
        self._is_busy = False
        #: The process that serves now.
        self.pid = 0

    def ask(
        self,
        owner: str,
        request: dict[str, Any],
        file: Path,
        *,
        answer: Answer | None = None,
        cpu: float | None = None,
        until: float | None = None,
    ) -> Iterator[Message]:
        """Yield the answers to a request about a file, each as soon as it comes.

        `answer` answers the questions of the box. `cpu` limits its processor time in seconds,
        `until` is a deadline on the monotonic clock; beyond either, TookTooLong is raised. Raises
        BoxDied, and RemoteError for what the code in the box raised.
        """
        if self._must_open(owner):
            self._open(owner)
        request = {**request, "file": self._give(file)}
        self._is_busy = True
        self._send(request)
        stop_at = None if cpu is None else self._cpu() + cpu
        while True:
            for message in self._receive(stop_at, until):
                if "end" in message.head:
                    self._is_busy = False
                    return
                if "error" in message.head:
                    self._is_busy = False
                    raise _remote_error(message.head["error"])
                if "ask" in message.head:
                    asked = message.head["ask"]
                    if answer is None or not isinstance(asked, dict):
                        raise self._distrust("a question that nobody expects")
                    self._send(answer(asked))
                else:
                    yield message

    def use(self, folder: Path) -> None:
        """Work in another folder from now on."""
        if folder != self._folder:
            self._end_box()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = folder

    def close(self) -> None:
        """End the box and its template, and remove its folder."""
        self._end_box()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._template is not None:
            self._template.kill()
            self._template.wait()
            self._template = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _open(self, owner: str) -> None:
        self._end_box()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._template is None or self._template.poll() is not None:
            self._start_template()
        assert self._control is not None and self._template is not None  # noqa: S101
        ours, theirs = socket.socketpair()
        given = {
            "folder": str(self._folder),
            "limits": self._limits._asdict(),
            "template": self._template.pid,
            "is_confined": self._is_confined,
        }
        try:
            order = json.dumps({"open": given}).encode() + b"\n"
            socket.send_fds(self._control, [order], [theirs.fileno()])
            self.pid = self._hear("pid")
        except OSError as error:
            ours.close()
            self._stop_template()
            raise _cannot_start(error) from error
        finally:
            theirs.close()
        ours.setblocking(False)
        self._link, self._decoder = ours, Decoder()
        self._owner, self._is_busy = owner, False

    def _start_template(self) -> None:
        self._stop_template()
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "quire.sandbox.template"]
        self._told = b""
        try:
            self._template = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
                [*command, str(theirs.fileno()), self._server, str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL if self._quiet else None,
                pass_fds=[theirs.fileno()],
                env={**confine.environment(), "PYTHONPATH": _ROOT},
            )
            self._control = ours
            theirs.close()
            self._hear("ready")
        except OSError as error:
            self._stop_template()
            raise _cannot_start(error) from error
        finally:
            theirs.close()

    def _stop_template(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._template is not None:
            self._template.kill()
            self._template.wait()
            self._template = None

    def _hear(self, name: str) -> int:
        """Return what the template tells under this name."""
        assert self._control is not None  # noqa: S101
        self._control.settimeout(START_SECONDS)
        while b"\n" not in self._told:
            chunk = self._control.recv(4096)
            if not chunk:
                raise OSError("the process that loads the parsers ended")
            self._told += chunk
        line, _, self._told = self._told.partition(b"\n")
        return int(json.loads(line)[name])

    def _end_box(self) -> int:
        """Kill the box, if there is one; return the code with which it ended."""
        link, self._link = self._link, None
        self._forget_file()
        if link is None:
            return 0
        link.close()
        try:
            assert self._control is not None  # noqa: S101
            self._control.sendall(b"{}\n")
            return self._hear("exited")
        except (OSError, KeyError, ValueError):
            self._stop_template()
            return -signal.SIGKILL

    def _died(self) -> BoxDied:
        """Return how the box ended by itself."""
        assert self._link is not None and self._control is not None  # noqa: S101
        self._link.close()
        self._link = None
        self._forget_file()
        try:
            return BoxDied(self._hear("exited"))
        except (OSError, KeyError, ValueError):
            self._stop_template()
            return BoxDied(-signal.SIGKILL)

    def _distrust(self, what: str) -> BoxDied:
        """End a box that does not keep to its protocol; it counts as a crash."""
        self._end_box()
        died = BoxDied(-signal.SIGSYS)
        died.add_note(f"It sent {what}.")
        return died

    def _give(self, file: Path) -> str:
        """Link a file into the folder of the box, and return its name there."""
        stat = file.stat()
        key = (str(file), stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if key != self._file:
            self._forget_file()
            place = self._folder / file.name
            place.unlink(missing_ok=True)
            try:
                os.link(file, place)
            except OSError:  # another file system, or one that has no links
                shutil.copy2(file, place)
            self._file = key
        return file.name

    def _forget_file(self) -> None:
        if self._file is not None:
            (self._folder / Path(self._file[0]).name).unlink(missing_ok=True)
            self._file = None

    def _send(self, head: dict[str, Any]) -> None:
        assert self._link is not None  # noqa: S101
        try:
            self._link.setblocking(True)
            self._link.sendall(encode(Message(head)))
            self._link.setblocking(False)
        except OSError:
            raise self._died() from None

    def _receive(self, cpu: float | None, until: float | None) -> list[Message]:
        assert self._link is not None  # noqa: S101
        watch = select.poll()
        watch.register(self._link, select.POLLIN)
        while True:
            wait = None if cpu is None else LOOK_EVERY
            if until is not None:
                wait = min(max(until - time.monotonic(), 0.0), wait or START_SECONDS)
            if watch.poll(None if wait is None else wait * 1000):
                break
            if (cpu is not None and self._cpu() > cpu) or (
                until is not None and time.monotonic() >= until
            ):
                self._end_box()
                raise TookTooLong
        try:
            chunk = self._link.recv(READ_BYTES)
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            raise self._died()
        try:
            return self._decoder.feed(chunk)
        except BrokenMessage as error:
            raise self._distrust(str(error)) from error

    def _cpu(self) -> float:
        """Return the processor time of the box, in seconds; 0 where it cannot be told."""
        if sys.platform != "linux":
            return 0.0
        with contextlib.suppress(OSError):
            return time.clock_gettime(~self.pid << 3 | 2)  # CPUCLOCK_SCHED of a process
        return 0.0

    def _must_open(self, owner: str) -> bool:
        if self._link is None or self._is_busy or owner != self._owner:
            return True
        if not self._folder.is_dir():
            return True
        watch = select.poll()
        watch.register(self._link, select.POLLIN)
        # A box has nothing to say now: this one has ended, and no request of ours is to blame.
        return bool(watch.poll(0)) or self._cpu() > WORN_AFTER


def _remote_error(given: Any) -> RemoteError:
    if isinstance(given, list) and len(given) == 3 and all(isinstance(x, str) for x in given):
        return RemoteError(*given)
    return RemoteError("Exception", "the reading process failed", "")


def _cannot_start(error: OSError) -> Transient:
    return Transient(f"the process that reads files could not be started ({error}).")


def _described(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    known = {each.value: each.name for each in signal.Signals}
    return known.get(-code, f"signal {-code}")
