"""The child process: takes batches of tasks from its worker, runs them, says how each ended.

It decides nothing about retries, limits or leases. It dies with its parent: on Linux the kernel
kills its whole process group, elsewhere a thread that watches the parent's end of a pipe does.
The imports are few on purpose: an idle child costs little memory.
"""

import faulthandler
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring_ascii
from pathlib import Path
from time import monotonic, monotonic_ns, time
from typing import TYPE_CHECKING, Any

from quire.errors import (
    BlobsUnavailable,
    DatabaseUnavailable,
    LeaseLost,
    Permanent,
    PluginFailed,
    Stopped,
    Transient,
)
from quire.runtime.child.channel import Outlet
from quire.runtime.child.shared_memory import Slate, Turnstile
from quire.runtime.child.wire import Assignment, Inbox, printable

if TYPE_CHECKING:
    from quire.model.contracts import JobKind

RESULT_LIMIT = 1024 * 1024
ERROR_LIMIT = 2_000
TRACEBACK_LIMIT = 16_000
PEAK_AFTER = 0.2

_PR_SET_PDEATHSIG = 1
_OOM_SCORE = "500"

# What a run came to: outcome, result, error, traceback, seconds until the retry.
Verdict = tuple[str, str | None, str | None, str | None, float | None]
DONE: Verdict = ("done", None, None, None, None)
SETTLED: Verdict = ("settled", None, None, None, None)
REVOKED: Verdict = ("revoked", None, None, None, None)

_decode = json.JSONDecoder().decode
_encode_result = json.JSONEncoder(allow_nan=False).encode


class Port:
    """What the runner offers to the context of one task; it closes when the task ends."""

    __slots__ = ("_index", "_outlet", "is_open", "is_settled", "scratch_root", "settings", "slate")

    def __init__(
        self,
        outlet: Outlet,
        slate: Slate,
        index: int,
        scratch_root: Path,
        settings: dict[str, Any],
    ) -> None:
        self._outlet = outlet
        self._index = index
        self.slate = slate
        self.scratch_root = scratch_root
        self.settings = settings
        self.is_open = True
        self.is_settled = False

    def is_revoked(self) -> bool:
        """Tell whether the task must stop: asked to, or over already; no system call."""
        return not self.is_open or self.slate.is_revoked(self._index)

    def report_progress(self, fraction: float | None, message: str | None) -> None:
        """Send progress, at most ten times a second; the last report is never dropped."""
        if self.is_open and not self._outlet.is_forked:
            self.slate.move(monotonic_ns() // 1000)
            self._outlet.progress(fraction, None if message is None else printable(message))

    def say(self, text: str) -> None:
        """Send a line of the task's log; every line, in order."""
        if self.is_open and not self._outlet.is_forked:
            self._outlet.say(printable(text))

    def mark_settled(self) -> None:
        """Say that the task's end is committed by the child itself."""
        self.is_settled = True
        self._outlet.drop_progress()


class Runner:
    """Runs batches in the main thread, one task after another."""

    def __init__(
        self,
        kinds: "dict[str, JobKind]",
        make_context: Callable[[Assignment, Port], Any],
        outlet: Outlet,
        slate: Slate,
        turnstile: Turnstile,
        config: dict[str, Any],
    ) -> None:
        self._kinds = kinds
        self._make_context = make_context
        self._outlet = outlet
        self._slate = slate
        self._turnstile = turnstile
        self._scratch = Path(config["scratch"])
        self._settings: dict[str, Any] = config["settings"]

    def run(self, batch: int, rows: list[list[Any]]) -> None:
        """Run a batch in order until its end or until the parent has taken back the rest."""
        self._outlet.open_batch()
        for index, row in enumerate(rows):
            if not self._turnstile.take():
                break
            self._run_one(index, Assignment._make(row))
        self._outlet.close_batch(batch)

    def _run_one(self, index: int, task: Assignment) -> None:
        slate, outlet = self._slate, self._outlet
        if slate.is_revoked(index):
            outlet.ended(_row(task, REVOKED, 0.0, 0.0), monotonic())
            return
        began_at, began = time(), monotonic_ns()
        port = Port(outlet, slate, index, self._scratch, self._settings)
        outlet.begin(task.task_id, task.fence)
        slate.begin(index, began // 1000)
        verdict = self._perform(task, port)
        if outlet.is_forked:
            os._exit(0)
        port.is_open = False
        ended = monotonic_ns()
        if port.is_settled:
            verdict = SETTLED
        outlet.ended(_row(task, verdict, began_at, (ended - began) / 1e9), ended / 1e9)
        slate.rest()

    def _perform(self, task: Assignment, port: Port) -> Verdict:
        kind = self._kinds.get(task.kind)
        if kind is None:
            known = ", ".join(sorted(self._kinds)) or "none"
            return _failed(
                "transient", f"job kind {task.kind!r} is not known here (known: {known})"
            )
        try:
            arguments = _decode(task.payload)
        except ValueError as error:
            return _failed("permanent", f"the payload is not JSON: {error}")
        if not isinstance(arguments, dict):
            return _failed("permanent", "the payload is not a JSON object")
        context = None
        try:
            context = self._make_context(task, port)
            value = kind.function(context, **arguments)
        except BaseException as error:  # a task must never end the loop
            return judge(error, kind.function, context, arguments)
        finally:
            if context is not None and not self._outlet.is_forked:
                context.close()
        return DONE if value is None else result_of(value)


def _row(task: Assignment, verdict: Verdict, began_at: float, duration: float) -> bytes:
    """Encode an `Ended`, field by field: the general encoder costs as much as a small task."""
    times = f"{began_at:.6f},{duration:.6f}"
    if verdict is DONE and duration < PEAK_AFTER:
        return f'[{task[0]},{task[1]},"done",null,null,null,{times},null,null]'.encode()
    outcome, result, error, trace, retry_after = verdict
    texts = f'"{outcome}",{_text(result)},{_text(error)},{_text(trace)}'
    retry = "null" if retry_after is None else json.dumps(retry_after)
    peak = peak_rss() if duration >= PEAK_AFTER else "null"
    return f"[{task.task_id},{task.fence},{texts},{times},{retry},{peak}]".encode()


def _text(value: str | None) -> str:
    return "null" if value is None else encode_basestring_ascii(value)


def _failed(outcome: str, error: str, trace: str | None = None) -> Verdict:
    return outcome, None, printable(error[:ERROR_LIMIT]), trace, None


def result_of(value: object) -> Verdict:
    """Encode what a handler returned, or say why that is not possible."""
    try:
        text = _encode_result(value)
    except (TypeError, ValueError, RecursionError) as error:
        return _failed("permanent", f"the result cannot be written as JSON: {error}")
    if len(text) > RESULT_LIMIT:
        return _failed(
            "permanent", f"the result has {len(text)} bytes as JSON (at most {RESULT_LIMIT})"
        )
    return "done", text, None, None, None


def judge(
    error: BaseException,
    function: Callable[..., Any],
    context: object,
    arguments: dict[str, Any],
) -> Verdict:
    """Turn what a handler raised into an outcome."""
    if isinstance(error, (Stopped, LeaseLost)):
        return _failed("stopped", str(error))
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        return _failed("transient", f"handler called sys.exit({code})")
    if isinstance(error, KeyboardInterrupt):
        return _failed("transient", "handler raised KeyboardInterrupt")
    trace = _trace(error)
    if isinstance(error, (DatabaseUnavailable, BlobsUnavailable)):
        return _failed("outage", str(error), trace)
    if isinstance(error, Permanent):
        return _failed("permanent", str(error) or type(error).__name__, trace)
    if isinstance(error, TypeError) and (wrong := _wrong_call(function, context, arguments)):
        return _failed("permanent", f"the payload does not fit the handler: {wrong}")
    if isinstance(error, Transient):
        verdict = _failed("transient", str(error) or type(error).__name__, trace)
        return *verdict[:4], error.retry_after
    return _failed("transient", f"{type(error).__name__}: {error}", trace)


def _wrong_call(
    function: Callable[..., Any], context: object, arguments: dict[str, Any]
) -> str | None:
    # After the call has failed, not before each one: a bind costs more than a small task.
    import inspect

    try:
        inspect.signature(function).bind(context, **arguments)
    except (TypeError, ValueError) as wrong:
        return str(wrong)
    return None


def _trace(error: BaseException) -> str:
    import traceback

    # The first frame is this module's and says nothing to the author of a handler.
    inner = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, inner))
    return printable(text[-TRACEBACK_LIMIT:])


def peak_rss() -> int:
    """Return the most memory this process used since the last call, in bytes."""
    try:
        status = Path("/proc/self/status").read_text()
        # The kernel then counts anew, so that the next task is not charged with this one's peak.
        Path("/proc/self/clear_refs").write_text("5")
        return int(status.partition("VmHWM:")[2].split(None, 1)[0]) * 1024
    except (OSError, ValueError, IndexError):
        import resource

        # Bytes on macOS; on Linux this branch is not reached (there it counts kilobytes).
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _die_with_parent(leash: int, parent: int) -> None:
    if sys.platform == "linux":
        import ctypes
        import fcntl

        # When the parent's end of the leash closes, the kernel kills the whole group, also
        # while C code holds the interpreter. The death signal is for a handler that closes
        # descriptors it does not know.
        fcntl.fcntl(leash, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(leash, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(leash, fcntl.F_SETFL, fcntl.fcntl(leash, fcntl.F_GETFL) | os.O_ASYNC)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    if os.getppid() != parent:
        os._exit(1)


def _prepare(fds: list[int], leash: int, parent: int) -> None:
    for fd in fds:
        os.set_inheritable(fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent(leash, parent)
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]


def _restore_paths(config: dict[str, Any]) -> None:
    sys.path[:] = config["sys_path"]
    if config["python_path"] is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = config["python_path"]


def _described(kind: "JobKind") -> dict[str, Any]:
    """Describe a kind without its function: the worker knows no more of it."""
    return {name: getattr(kind, name) for name in kind.__slots__ if name != "function"}


def _messages(connection: socket.socket) -> Iterator[dict[str, Any]]:
    inbox = Inbox()
    while chunk := connection.recv(1 << 18):
        yield from inbox.feed(chunk)


def main() -> None:
    """Serve the worker that started this process until it says exit."""
    fds = [int(number) for number in sys.argv[1:5]]
    link, memory, turnstile, leash = fds
    _prepare(fds, leash, int(sys.argv[5]))
    connection = socket.socket(fileno=link)
    messages = _messages(connection)
    config = next(messages)["config"]
    _restore_paths(config)

    from quire.plugins import equip, load
    from quire.runtime.child.context import Context

    slate = Slate(memory)
    try:
        registry = load(config["plugins"])
    except PluginFailed as error:
        raise SystemExit(str(error)) from None
    equip(registry)
    kinds = registry.kinds
    outlet = Outlet(connection, slate, leash)
    runner = Runner(kinds, Context, outlet, slate, Turnstile(turnstile), config)
    gc.freeze()  # what was loaded stays; the collector need not walk through it again
    gc.set_threshold(10_000)  # a task makes thousands of rows and few circles
    outlet.send({"ready": os.getpid(), "kinds": [_described(kind) for kind in kinds.values()]})
    for message in messages:
        if "exit" in message:
            return
        runner.run(message["batch"], message["run"])


if __name__ == "__main__":
    main()
