"""Handlers that behave badly in every way that a child must survive or die of."""

import ctypes
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from quire.errors import Permanent, Transient
from quire.model.contracts import job


@job("t.nothing")
def nothing(ctx: Any) -> None:
    pass


@job("t.echo")
def echo(ctx: Any, value: Any) -> Any:
    return value


@job("t.warns")
def warns(ctx: Any) -> None:
    from quire import log

    log.event("fetch.refused", level="warning", host="wiki", addresses="10.0.0.5")
    log.event("of.no.interest", host="wiki")


@job("t.note")
def note(ctx: Any, path: str, line: str) -> None:
    with Path(path).open("a") as file:
        file.write(line + "\n")


@job("t.bug")
def bug(ctx: Any) -> None:
    raise KeyError("a \0 and a \udc80 in it")


@job("t.inner_type_error")
def inner_type_error(ctx: Any) -> None:
    len(5)  # type: ignore[arg-type]


@job("t.transient")
def transient(ctx: Any, retry_after: float | None = None) -> None:
    raise Transient("the service is away", retry_after=retry_after)


@job("t.permanent")
def permanent(ctx: Any) -> None:
    raise Permanent("the file is empty")


@job("t.sys_exit")
def sys_exit(ctx: Any, code: int) -> None:
    sys.exit(code)


@job("t.interrupt")
def interrupt(ctx: Any) -> None:
    raise KeyboardInterrupt


@job("t.hard_exit")
def hard_exit(ctx: Any, code: int) -> None:
    print("leaving now")
    os._exit(code)


@job("t.segfault")
def segfault(ctx: Any) -> None:
    ctypes.string_at(0)


@job("t.closes_all")
def closes_all(ctx: Any) -> None:
    os.closerange(3, 65_536)


@job("t.hog")
def hog(ctx: Any) -> None:
    hoard = []
    while True:
        hoard.append(b"x" * 10_000_000)
        threading.Event().wait(0.01)


@job("t.hog_in_fork")
def hog_in_fork(ctx: Any) -> None:
    if os.fork() == 0:
        hog(ctx)
    threading.Event().wait(60)


@job("t.large")
def large(ctx: Any, megabytes: int) -> None:
    hoard = b"x" * (megabytes * 1_000_000)
    threading.Event().wait(0.3)
    del hoard


@job("t.waits")
def waits(ctx: Any, seconds: float = 60) -> None:
    threading.Event().wait(seconds)


@job("t.obeys")
def obeys(ctx: Any) -> None:
    while True:
        ctx.check()
        threading.Event().wait(0.01)


@job("t.holds_gil")
def holds_gil(ctx: Any) -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")


@job("t.prints")
def prints(ctx: Any) -> str:
    for number in range(1024):
        print(f"{number:1023}")
    return "printed"


@job("t.object")
def returns_object(ctx: Any) -> object:
    return object()


@job("t.not_a_number")
def not_a_number(ctx: Any) -> float:
    return float("nan")


@job("t.huge")
def huge(ctx: Any, size: int) -> str:
    return "x" * size


@job("t.starts_program")
def starts_program(ctx: Any, path: str, stay: bool = False) -> int:
    program = subprocess.Popen(["sleep", "600"])
    Path(path).write_text(f"{os.getpid()} {program.pid}")
    if stay:
        threading.Event().wait(600)
    return program.pid


@job("t.forks_and_returns_twice")
def forks_and_returns_twice(ctx: Any) -> str:
    return "fork" if os.fork() == 0 else "parent"


@job("t.lingering_fork")
def lingering_fork(ctx: Any) -> int:
    pid = os.fork()
    if pid == 0:
        threading.Event().wait(600)
        os._exit(0)
    return pid


@job("t.progress")
def progress(ctx: Any, steps: int, then: float = 0) -> None:
    for step in range(steps):
        ctx.progress((step + 1) / steps, f"step {step + 1}")
    threading.Event().wait(then)


@job("t.moves")
def moves(ctx: Any, steps: int) -> None:
    for step in range(steps):
        threading.Event().wait(0.1)
        ctx.progress(step / steps, "still here")


@job("t.modules")
def modules(ctx: Any) -> list[str]:
    return sorted(sys.modules)


@job("t.environment")
def environment(ctx: Any) -> list[Any]:
    return [os.environ.get("PYTHONPATH"), sys.stdin.read(), os.getpid() == os.getpgrp()]
