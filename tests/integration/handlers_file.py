"""Handlers of the tests that run real workers.

Each says that it began in an append-only file of the home, and writes its effect, if it has one,
through `ctx.fenced()` into a table that the test has made.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from quire import Permanent, Transient, job

HOME = Path(os.environ.get("QUIRE_HOME", "."))
INSERT = "INSERT INTO effects (tag, task, fence) VALUES (:tag, :task, :fence)"


def note(*words: object) -> None:
    """Append one line to the trace of the home, in one write."""
    line = " ".join(map(str, words)) + "\n"
    fd = os.open(HOME / "trace.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line.encode())
    os.close(fd)


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def write(tx: Any, ctx: Any, tag: str) -> None:
    key = {"tag": tag, "task": ctx.task_id, "fence": ctx._fence}
    tx.execute(INSERT, key)


@job("i.effect", backoff=0.05)
def effect(ctx: Any, tag: str, seconds: float = 0.0) -> None:
    """Take some time, then write."""
    note("began", tag, os.getpid(), ctx.attempt)
    pause(seconds)
    with ctx.fenced() as tx:
        write(tx, ctx, tag)
    note("ended", tag, os.getpid())


@job("i.gated", backoff=0.05)
def gated(ctx: Any, tag: str, gate: str = "gate") -> None:
    """Wait for a file of the home, then write."""
    note("began", tag, os.getpid(), ctx.attempt)
    while not (HOME / gate).exists():
        pause(0.01)
    try:
        with ctx.fenced() as tx:
            write(tx, ctx, tag)
    except Exception as error:
        note("refused", tag, type(error).__name__)
        raise
    note("ended", tag, os.getpid())


@job("i.sits", grace=30.0)
def sits(ctx: Any, tag: str, gate: str = "gate") -> None:
    """Sit inside the last transaction, and report, until a file of the home is there."""
    try:
        with ctx.fenced() as tx:
            write(tx, ctx, tag)
            note("inside", tag, os.getpid())
            while not (HOME / gate).exists():
                ctx.progress(0.5)
                pause(0.01)
    except Exception as error:
        note("refused", tag, type(error).__name__)
        raise


@job("i.reporting", backoff=0.05)
def reporting(ctx: Any, tag: str, gate: str) -> None:
    """Report all the time until a file of the home is there, then write."""
    note("began", tag, os.getpid(), ctx.attempt)
    while not (HOME / gate).exists():
        ctx.progress(0.5)
        pause(0.01)
    with ctx.fenced() as tx:
        write(tx, ctx, tag)


@job("i.fan")
def fan(ctx: Any, children: list[list[Any]]) -> None:
    """Add a child for each kind and payload."""
    with ctx.fenced() as tx:
        for kind, payload in children:
            tx.spawn(kind, payload)


@job("i.slow", queue="slow", backoff=0.05)
def slow(ctx: Any, tag: str, gate: str = "") -> None:
    """Write in a queue of its own, after a file of the home is there if it is to be."""
    note("began", tag, os.getpid(), ctx.attempt)
    while gate and not (HOME / gate).exists():
        pause(0.01)
    with ctx.fenced() as tx:
        write(tx, ctx, tag)


@job("i.gated_plain", backoff=0.05)
def gated_plain(ctx: Any, tag: str, gate: str = "gate") -> str:
    """Wait for a file of the home, then return: the worker writes the end."""
    note("began", tag, os.getpid(), ctx.attempt)
    while not (HOME / gate).exists():
        pause(0.01)
    return tag


@job("i.burns", backoff=0.05)
def burns(ctx: Any, tag: str, gate: str = "gate") -> None:
    """Use a processor until a file of the home is there."""
    note("began", tag, os.getpid(), ctx.attempt)
    while not (HOME / gate).exists():
        sum(range(100_000))


@job("i.freezes", backoff=0.05, timeout=8)
def freezes(ctx: Any, tag: str, whole: bool = False) -> None:
    """Stop itself, or also its worker, inside its write transaction, at the first try."""
    first = not (HOME / f"froze-{tag}").exists()
    note("began", tag, os.getpid(), ctx.attempt)
    try:
        with ctx.fenced() as tx:
            write(tx, ctx, tag)
            if first:
                (HOME / f"froze-{tag}").touch()
                if whole:
                    os.kill(os.getppid(), signal.SIGSTOP)
                os.kill(os.getpid(), signal.SIGSTOP)
    except Exception as error:
        note("refused", tag, type(error).__name__)
        raise


@job("i.kills_self", backoff=0.05)
def kills_self(ctx: Any, tag: str, where: str) -> None:
    """Die at a chosen place, at the first try."""
    first = not (HOME / f"died-{tag}").exists()
    (HOME / f"died-{tag}").touch()
    note("began", tag, os.getpid(), ctx.attempt)
    if first and where == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    with ctx.fenced() as tx:
        write(tx, ctx, tag)
        if first and where == "inside":
            os.kill(os.getpid(), signal.SIGKILL)
    if first and where == "after":
        os.kill(os.getpid(), signal.SIGKILL)


@job("i.tidies")
def tidies(ctx: Any, tag: str, seconds: float) -> None:
    """Commit the end, then go on for longer than the grace of a stop."""
    note("began", tag, os.getpid(), ctx.attempt)
    with ctx.fenced() as tx:
        write(tx, ctx, tag)
    pause(seconds)
    ctx.check()
    note("tidied", tag, os.getpid())


@job("i.wait")
def wait(ctx: Any, tag: str, seconds: float) -> None:
    note("began", tag, os.getpid(), ctx.attempt)
    pause(seconds)
    note("ended", tag, os.getpid())


@job("i.nothing")
def nothing(ctx: Any) -> None:
    pass


@job("i.polite", grace=30.0)
def polite(ctx: Any, tag: str) -> None:
    """Obey a stop by itself; its grace is too long for the kill to be the cause of its end."""
    note("began", tag, os.getpid(), ctx.attempt)
    try:
        while True:
            ctx.check()
            pause(0.01)
    finally:
        note("stopped", tag)


@job("i.deaf", grace=0.5)
def deaf(ctx: Any, tag: str) -> None:
    """Never look whether it was stopped, catch all, and write in the end."""
    note("began", tag, os.getpid(), ctx.attempt)
    while not (HOME / "gate").exists():
        try:
            pause(0.05)
        except BaseException:  # noqa: S112
            continue
    with ctx.fenced() as tx:
        write(tx, ctx, tag)


@job("i.holds_gil", grace=0.2)
def holds_gil(ctx: Any, tag: str) -> None:
    """Stay in C without letting go of the interpreter."""
    note("began", tag, os.getpid(), ctx.attempt)
    ctypes.PyDLL(None).usleep(60_000_000)


@job("i.holds_gil_limited", max_attempts=1, timeout=0.5)
def holds_gil_limited(ctx: Any) -> None:
    ctypes.PyDLL(None).usleep(60_000_000)


@job("i.raises", max_attempts=2, backoff=0.05)
def raises(ctx: Any) -> None:
    raise KeyError("no such page")


@job("i.permanent", max_attempts=6, backoff=0.05)
def permanent(ctx: Any) -> None:
    raise Permanent("the file is empty")


@job("i.transient", max_attempts=4, backoff=0.3, max_backoff=0.3)
def transient(ctx: Any, tag: str, fails: int) -> str:
    note("began", tag, os.getpid(), ctx.attempt, ctx.idempotency_key)
    if ctx.attempt <= fails:
        raise Transient("the service is away")
    return f"try {ctx.attempt}"


@job("i.named_wait", max_attempts=2, backoff=600.0)
def named_wait(ctx: Any) -> str:
    """Say itself when to try again."""
    if ctx.attempt == 1:
        raise Transient("busy", retry_after=0.1)
    return "done"


@job("i.exits", max_attempts=1)
def exits(ctx: Any) -> None:
    sys.exit(3)


@job("i.hard_exit", max_attempts=1)
def hard_exit(ctx: Any) -> None:
    print("leaving now", flush=True)
    os._exit(7)


@job("i.segfault", max_attempts=1)
def segfault(ctx: Any) -> None:
    ctypes.string_at(0)


@job("i.hog", max_attempts=1, memory=300_000_000)
def hog(ctx: Any) -> None:
    hoard = []
    while True:
        hoard.append(os.urandom(4_000_000))
        pause(0.01)


@job("i.too_long", max_attempts=1, timeout=0.5)
def too_long(ctx: Any) -> None:
    pause(60)


@job("i.stalls", max_attempts=1, stall_timeout=0.6)
def stalls(ctx: Any) -> None:
    for at in range(5):
        ctx.progress(at / 10)
        pause(0.25)
    pause(60)


@job("i.prints", max_attempts=1)
def prints(ctx: Any) -> str:
    line = "x" * 1023
    for _ in range(1024):
        print(line)
    return "printed"


@job("i.not_json", max_attempts=1)
def not_json(ctx: Any) -> object:
    return {"a": object()}


@job("i.nan", max_attempts=1)
def nan(ctx: Any) -> float:
    return float("nan")


@job("i.forks", max_attempts=1)
def forks(ctx: Any, tag: str) -> str:
    """Leave a process behind that would write later."""
    if os.fork() == 0:
        pause(30)
        note("fork", tag)
        os._exit(0)
    return "forked"


@job("i.leaves_program", max_attempts=1, timeout=0.7)
def leaves_program(ctx: Any, tag: str) -> None:
    """Start a program, then run past the limit."""
    program = subprocess.Popen([sys.executable, "-c", "import time; time." + "sleep" + "(60)"])
    note("program", tag, program.pid)
    pause(60)


@job("i.pays", at_most_once=True, reason="it pays")
def pays(ctx: Any, tag: str) -> None:
    note("began", tag, os.getpid(), ctx.attempt)
    pause(60)


@job("i.once", at_most_once=True, reason="it pays")
def once(ctx: Any, tag: str) -> None:
    note("began", tag, os.getpid(), ctx.attempt)


@job("i.steps", backoff=0.05)
def steps(ctx: Any, tag: str) -> list[Any]:
    """Three steps; the process dies after the second one, once."""
    note("began", tag, os.getpid(), ctx.idempotency_key)

    def first() -> str:
        note("step", tag, "first")
        return "one"

    def second(tx: Any) -> int:
        write(tx, ctx, f"{tag}-second")
        return 2

    made = [ctx.step("first", first), ctx.step("second", second)]
    if not (HOME / f"died-{tag}").exists():
        (HOME / f"died-{tag}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    made.append(ctx.step("third", lambda: None))
    return made


@job("i.parent", backoff=0.05)
def parent(ctx: Any, tag: str, count: int) -> None:
    """Add children, a last one after all of them, and die once before the commit."""
    with ctx.fenced() as tx:
        numbers = [tx.spawn("i.effect", {"tag": f"{tag}-{n}"}) for n in range(count)]
        tx.spawn("i.effect", {"tag": f"{tag}-last"}, after=numbers)
        if not (HOME / f"died-{tag}").exists():
            (HOME / f"died-{tag}").touch()
            os.kill(os.getpid(), signal.SIGKILL)


@job("i.scratch", backoff=0.05)
def part_path(ctx: Any, tag: str, die: bool = False) -> None:
    (ctx.scratch / "file").write_text("x")
    note("scratch", tag, ctx.scratch)
    if die and ctx.attempt == 1 and not (HOME / f"died-{tag}").exists():
        (HOME / f"died-{tag}").touch()
        os.kill(os.getpid(), signal.SIGKILL)


@job("i.reports")
def reports(ctx: Any, tag: str) -> None:
    for at in (0.1, 0.5, 0.3, 0.8):
        ctx.progress(at, f"at {at}")
        pause(0.2)
    note("reported", tag)
    while not (HOME / "gate").exists():
        pause(0.01)


@job("i.chaos", max_attempts=1000, backoff=0.05, max_backoff=0.2)
def chaos(ctx: Any, tag: str, seconds: float, children: int = 0) -> str:
    """A step with a write, some time, then a write and children in the last transaction."""
    ctx.step("early", lambda tx: write(tx, ctx, f"{tag}.early"))
    pause(seconds)
    with ctx.fenced() as tx:
        write(tx, ctx, tag)
        leaves = [tx.spawn("i.leaf", {"tag": f"{tag}.{n}"}) for n in range(children)]
        if children:
            tx.spawn("i.leaf", {"tag": f"{tag}.last"}, after=leaves)
    return tag


@job("i.leaf", max_attempts=1000, backoff=0.05, max_backoff=0.2)
def leaf(ctx: Any, tag: str) -> None:
    with ctx.fenced() as tx:
        write(tx, ctx, tag)


@job("i.chaos_plain", max_attempts=1000, backoff=0.05, max_backoff=0.2)
def chaos_plain(ctx: Any, tag: str, seconds: float) -> str:
    """Only return: the worker writes the end."""
    ctx.progress(0.5, tag)
    pause(seconds)
    return tag
