"""Reads code blocks and tables of the documents, and runs the blocks as a reader would.

Python blocks of a document share one namespace and run in order; test functions in them are
called. A block that begins with `# name.py` is also saved under that name. Lines of shell blocks
run one by one; a line that runs until Ctrl-C is left running to the end.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
#: Seconds for one line; a machine that is busy with other tests is slow.
PATIENCE = 120.0
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# (\w+\.py)\n")


class Block(NamedTuple):
    """A fenced block of a document."""

    language: str
    text: str


def read(name: str) -> str:
    """Return a document's text."""
    return (ROOT / name).read_text()


def blocks(name: str) -> list[Block]:
    """List the fenced blocks of a document."""
    return [Block(*found) for found in _FENCE.findall(read(name))]


def rows(text: str) -> list[list[str]]:
    """List the cells of the rows of all tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = [at for at, line in enumerate(lines) if not set(line) - set("|-: ")]
    heads = {at - 1 for at in rules}
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for at, line in enumerate(lines)
        if at not in heads and at not in rules
    ]


def section(name: str, title: str) -> str:
    """Return the part of a document under a heading of the second level."""
    _, _, rest = read(name).partition(f"\n## {title}\n")
    assert rest, f"{name} has no section {title!r}"
    return rest.split("\n## ", 1)[0]


def quoted(text: str) -> list[str]:
    """List what stands between backquotes."""
    return re.findall(r"`([^`]+)`", text)


def run_python(block: Block, namespace: dict[str, Any], folder: Path, source: str) -> int:
    """Run a block in the namespace of its document; returns how many tests it had."""
    if named := _FILE.match(block.text):
        (folder / named[1]).write_text(block.text)
    before = set(namespace)
    exec(compile(block.text, source, "exec"), namespace)  # noqa: S102
    tests = [n for n in namespace if n.startswith("test_") and n not in before]
    for at, name in enumerate(tests):
        own = folder / f"{len(before)}-{at}"
        own.mkdir()
        arguments = {"tmp_path": own}
        wanted = inspect.signature(namespace[name]).parameters
        namespace[name](**{key: arguments[key] for key in wanted})
    return len(tests)


class Shell:
    """Runs the lines of shell blocks in a folder that looks like a checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[subprocess.Popen[str]] = []
        for name in ("Makefile", "README.md", "docs"):
            (folder / name).symlink_to(ROOT / name)
        (folder / ".venv").symlink_to(sys.prefix)
        # Or the home of who runs the tests would be the nearest.
        (folder / ".quire").mkdir(mode=0o700)

    def run(self, block: Block) -> list[str]:
        """Run a block; returns what each line printed."""
        return [self._line(line) for line in block.text.splitlines() if line.strip()]

    def stop(self) -> None:
        """Press Ctrl-C in every terminal, and wait."""
        while self._running:
            program = self._running.pop()
            # To the group, as a terminal does: make passes nothing on.
            os.killpg(program.pid, signal.SIGINT)
            program.wait(PATIENCE)
            assert program.stderr is not None
            program.stderr.close()

    def _line(self, line: str) -> str:
        # The environment is set up already, and must not be made anew under running tests.
        command = re.sub(r"^make ", "make --silent --old-file=setup --old-file=dev ", line)
        if {"up", "worker"} & set(shlex.split(line, comments=True)):
            self._start(command)
            return ""
        ended = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )
        assert ended.returncode == 0, f"{line}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def _start(self, command: str) -> None:
        self.stop()
        program = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            cwd=self.folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._running.append(program)
        assert program.stderr is not None
        _wait_for("worker.started", program.stderr)


def _wait_for(word: str, stream: IO[str]) -> None:
    end = time.monotonic() + PATIENCE
    seen = ""
    with contextlib.closing(selectors.DefaultSelector()) as selector:
        selector.register(stream, selectors.EVENT_READ)
        while word not in seen:
            assert selector.select(max(end - time.monotonic(), 0)), f"no {word!r} in: {seen}"
            chunk = os.read(stream.fileno(), 65536).decode()
            assert chunk, f"ended without {word!r}: {seen}"
            seen += chunk


def _environment() -> dict[str, str]:
    path = f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}"
    kept = {name: text for name, text in os.environ.items() if not name.startswith("QUIRE_")}
    # Less than the test's own, which has to see the end.
    return {**kept, "PATH": path, "QUIRE_STOP_GRACE": "5", "MAKEFLAGS": "", "MAKELEVEL": "0"}


@contextlib.contextmanager
def terminal(folder: Path) -> Iterator[Shell]:
    """Give a shell whose programs have ended when the block has."""
    shell = Shell(folder)
    try:
        yield shell
    finally:
        shell.stop()
