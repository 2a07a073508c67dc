"""The child process: takes batches of leases from its worker, runs the handlers, reports.

It decides nothing about retries, limits or leases. It dies with its parent: on Linux the kernel
kills its process group, elsewhere the thread of its channel does. It imports little on purpose:
an idle child uses little memory.
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
from time import monotonic, monotonic_ns
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
from quire.home import UMASK
from quire.model.outcomes import Lease, Outcome, RunReport
from quire.model.records import LOCAL
from quire.runtime.child.channel import Channel, Inbox, SharedMemory, StartTokens, printable
from quire.url_secrets import MASK, masked

if TYPE_CHECKING:
    from quire.model.context import TaskContext
    from quire.model.contracts import JobKind
    from quire.runtime.child.context import Context

MAX_RESULT = 1024 * 1024
MAX_ERROR = 2_000
MAX_TRACEBACK = 16_000
#: Runs shorter than this do not report their peak memory.
PEAK_AFTER = 0.2

_PR_SET_PDEATHSIG = 1
_OOM_SCORE = "500"

_decode = json.JSONDecoder().decode
_encode_result = json.JSONEncoder(allow_nan=False).encode


class ChildBackend:
    """Connects the context of one task to the child; closed when the task ends."""

    __slots__ = (
        "_channel", "_index", "_memory", "is_open", "is_settled", "scratch_root", "settings",
    )  # fmt: skip

    def __init__(
        self,
        channel: Channel,
        memory: SharedMemory,
        index: int,
        scratch_root: Path,
        settings: dict[str, Any],
    ) -> None:
        self._channel = channel
        self._memory = memory
        self._index = index
        self.scratch_root = scratch_root
        self.settings = settings
        self.is_open = True
        self.is_settled = False

    def is_revoked(self) -> bool:
        """Tell whether the task must stop; costs no system call."""
        if self.is_settled:  # its lease ended with it, which is no stop
            return not self.is_open
        return not self.is_open or self._memory.is_revoked(self._index)

    def report_progress(self, fraction: float | None, message: str | None) -> None:
        """Send progress, at most ten times a second; the last report is never dropped."""
        if self.is_open and not self._channel.is_forked:
            self._memory.touch(monotonic_ns() // 1000)
            self._channel.progress(
                fraction, None if message is None else printable(masked(message))
            )

    def log_line(self, text: str) -> None:
        """Send a line of the task's log; every line, in order."""
        if self.is_open and not self._channel.is_forked:
            self._channel.log_line(printable(masked(text)))

    def mark_settled(self) -> None:
        """Record that the handler committed the end of the task itself."""
        self.is_settled = True
        self._memory.settle(self._index)
        self._channel.drop_progress()


class Runner:
    """Runs batches in the main thread, one task after another."""

    def __init__(
        self,
        kinds: "dict[str, JobKind]",
        make_context: "Callable[[Lease, ChildBackend], Context]",
        channel: Channel,
        memory: SharedMemory,
        tokens: StartTokens,
        config: dict[str, Any],
    ) -> None:
        self._kinds = kinds
        self._make_context = make_context
        self._channel = channel
        self._memory = memory
        self._tokens = tokens
        self._scratch = Path(config["scratch"])
        self._settings: dict[str, Any] = config["settings"]

    def run(self, batch: int, rows: list[list[Any]]) -> None:
        """Run a batch in order, until its end or until the worker has taken back the rest."""
        self._channel.start_batch()
        for index, row in enumerate(rows):
            if not self._tokens.take():
                break
            self._run_one(index, Lease._make(row))
        self._channel.end_batch(batch)

    def _run_one(self, index: int, lease: Lease) -> None:
        memory, channel = self._memory, self._channel
        if memory.is_revoked(index):
            skipped = RunReport(lease.task_id, lease.fence, Outcome.REVOKED)
            channel.report(_encode(skipped, None), monotonic())
            return
        started = monotonic_ns()
        backend = ChildBackend(channel, memory, index, self._scratch, self._settings)
        channel.start_task(lease.task_id, lease.fence)
        memory.start(index, started // 1000)
        report = self._perform(lease, backend)
        if channel.is_forked:
            os._exit(0)
        backend.is_open = False
        now = monotonic_ns()
        if backend.is_settled:
            report = RunReport(lease.task_id, lease.fence, Outcome.SETTLED)
        channel.report(_encode(report, (now - started) / 1e9), now / 1e9)
        memory.finish()

    def _perform(self, lease: Lease, backend: ChildBackend) -> RunReport:
        kind = self._kinds.get(lease.kind)
        if kind is None:
            known = ", ".join(sorted(self._kinds)) or "none"
            error = f"job kind {lease.kind!r} is not known here (known: {known})"
            return _failed(lease, Outcome.TRANSIENT, error)
        context = None
        try:
            context = self._make_context(lease, backend)
            return perform(lease, kind, context)
        except BaseException as error:  # making the context failed
            return judge(lease, error)
        finally:
            if context is not None and not self._channel.is_forked:
                context.close()


def perform(lease: Lease, kind: "JobKind", context: "TaskContext") -> RunReport:
    """Call the handler and return how it ended; nothing that it raises gets through."""
    try:
        arguments = _arguments(lease, kind, context)
    except Permanent as error:
        return _failed(lease, Outcome.PERMANENT, str(error))
    except Transient as error:
        return judge(lease, error)
    try:
        value = kind.function(context, **arguments)
    except BaseException as error:  # a task must never end the loop
        if isinstance(error, TypeError) and (
            mismatch := _signature_mismatch(kind.function, context, arguments)
        ):
            text = f"the payload does not match the handler's parameters: {mismatch}"
            return _failed(lease, Outcome.PERMANENT, text)
        return judge(lease, error)
    if value is None:
        return RunReport(lease.task_id, lease.fence, Outcome.DONE)
    try:
        text = _encode_result(value)
    except (TypeError, ValueError, RecursionError) as error:
        text = f"the result cannot be written as JSON: {error}"
        return _failed(lease, Outcome.PERMANENT, text)
    if len(text) > MAX_RESULT:
        text = f"the result has {len(text)} bytes as JSON (at most {MAX_RESULT})"
        return _failed(lease, Outcome.PERMANENT, text)
    return RunReport(lease.task_id, lease.fence, Outcome.DONE, result=text)


def _arguments(lease: Lease, kind: "JobKind", context: "TaskContext") -> dict[str, Any]:
    """Decode and check the payload of a task, or unseal that of a plugin's kind.

    Ingestion unseals what it opens a source with, and nothing else.
    """
    try:
        arguments = _decode(lease.payload)
    except ValueError as error:
        raise Permanent(f"the payload is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise Permanent("the payload is not a JSON object")
    if kind.payload is not None:
        kind.payload.check_stored(lease.kind, arguments, by_api=lease.origin != LOCAL)
    elif MASK in lease.payload:
        from quire.ingest import resources

        arguments = dict(resources.unsealed(context, arguments))
    return arguments


def judge(lease: Lease, error: BaseException) -> RunReport:
    """Return the outcome for what a handler raised."""
    text = str(error)
    match error:
        case Stopped() | LeaseLost():
            return _failed(lease, Outcome.STOPPED, text)
        case SystemExit():
            code = "" if error.code is None else repr(error.code)
            return _failed(lease, Outcome.TRANSIENT, f"handler called sys.exit({code})")
        case KeyboardInterrupt():
            return _failed(lease, Outcome.TRANSIENT, "handler raised KeyboardInterrupt")
    trace, name = _traceback(error), type(error).__name__
    match error:
        case DatabaseUnavailable() | BlobsUnavailable():
            return _failed(lease, Outcome.OUTAGE, text, trace)
        case Permanent():
            return _failed(lease, Outcome.PERMANENT, text or name, trace)
        case Transient():
            report = _failed(lease, Outcome.TRANSIENT, text or name, trace)
            return report._replace(retry_after=error.retry_after)
        case _:
            return _failed(lease, Outcome.TRANSIENT, f"{name}: {error}", trace)


def _failed(lease: Lease, outcome: Outcome, error: str, trace: str | None = None) -> RunReport:
    error = printable(masked(error[:MAX_ERROR]))
    return RunReport(lease.task_id, lease.fence, outcome, error=error, traceback=trace)


def _signature_mismatch(
    function: Callable[..., Any], context: object, arguments: dict[str, Any]
) -> str | None:
    # After the call has failed, not before each call: a bind costs more than a small task.
    import inspect

    try:
        inspect.signature(function).bind(context, **arguments)
    except (TypeError, ValueError) as mismatch:
        return str(mismatch)
    return None


def _traceback(error: BaseException) -> str:
    import traceback

    # Without the first frame, which is in this module.
    inner = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, inner))
    return printable(masked(text)[-MAX_TRACEBACK:])


def _encode(report: RunReport, duration: float | None) -> bytes:
    """Encode a report field by field: the general encoder costs as much as a small task."""
    task_id, fence, outcome, result, error, trace, _, retry_after, _ = report
    is_long = duration is not None and duration >= PEAK_AFTER
    time = "null" if duration is None else f"{duration:.6f}"
    if outcome is Outcome.DONE and result is None and not is_long:
        return f'[{task_id},{fence},"done",null,null,null,{time},null,null]'.encode()
    texts = f'"{outcome.value}",{_text(result)},{_text(error)},{_text(trace)}'
    retry = "null" if retry_after is None else json.dumps(retry_after)
    peak = peak_rss() if is_long else "null"
    return f"[{task_id},{fence},{texts},{time},{retry},{peak}]".encode()


def _text(value: str | None) -> str:
    return "null" if value is None else encode_basestring_ascii(value)


def peak_rss() -> int:
    """Return the peak memory of this process since the last call, in bytes."""
    try:
        status = Path("/proc/self/status").read_text()
        # Reset the peak, so that the next task is not charged with this one's.
        Path("/proc/self/clear_refs").write_text("5")
        return int(status.partition("VmHWM:")[2].split(None, 1)[0]) * 1024
    except (OSError, ValueError, IndexError):
        import resource

        # Bytes on macOS; Linux, which counts kilobytes, does not get here.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _die_with_parent(parent_pipe: int, parent: int) -> None:
    if sys.platform == "linux":
        import ctypes
        import fcntl

        # When the parent's end of the pipe closes, the kernel kills the whole group, even while C
        # code holds the GIL. The death signal covers handlers that close unknown descriptors.
        fcntl.fcntl(parent_pipe, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(parent_pipe, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(parent_pipe, fcntl.F_GETFL)
        fcntl.fcntl(parent_pipe, fcntl.F_SETFL, flags | os.O_ASYNC)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    if os.getppid() != parent:
        os._exit(1)


def _prepare(fds: list[int], parent_pipe: int, parent: int) -> None:
    for fd in fds:
        os.set_inheritable(fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent(parent_pipe, parent)
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]


def _messages(connection: socket.socket) -> Iterator[dict[str, Any]]:
    inbox = Inbox()
    while chunk := connection.recv(1 << 18):
        yield from inbox.feed(chunk)


def main() -> None:
    """Serve the worker that started this process until it sends `exit`."""
    os.umask(UMASK)  # a worker inside another program would leave its own
    fds = [int(number) for number in sys.argv[1:5]]
    link, memory_fd, tokens_fd, parent_pipe = fds
    _prepare(fds, parent_pipe, int(sys.argv[5]))
    connection = socket.socket(fileno=link)
    messages = _messages(connection)
    config = next(messages)["config"]
    sys.path[:] = config["sys_path"]
    os.environ.pop("PYTHONPATH", None)
    if config["python_path"] is not None:
        os.environ["PYTHONPATH"] = config["python_path"]

    from quire import log
    from quire.plugins import equip, load
    from quire.runtime.child.context import Context

    memory = SharedMemory(memory_fd)
    try:
        registry = load(config["plugins"], entry_points=False)
    except PluginFailed as error:
        raise SystemExit(str(error)) from None
    equip(registry)
    kinds = registry.kinds
    channel = Channel(connection, memory, parent_pipe)
    log.send_to(channel.log_event)
    runner = Runner(kinds, Context, channel, memory, StartTokens(tokens_fd), config)
    gc.freeze()  # what is loaded now stays; the collector need not scan it
    gc.set_threshold(10_000)  # a task makes thousands of objects and few reference cycles
    described = [kind.described() for kind in kinds.values()]
    channel.send({"ready": os.getpid(), "kinds": described})
    for message in messages:
        if "exit" in message:
            return
        runner.run(message["batch"], message["run"])


if __name__ == "__main__":
    main()
