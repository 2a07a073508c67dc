"""Fixtures: the `quire` command on a scratch home, in this process or as one of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quire.cli import main


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)


Run = Callable[..., Ended]


@pytest.fixture
def quire(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command on a scratch home; the home's database is made by the first that writes."""
    monkeypatch.setenv("QUIRE_HOME", str(home))
    monkeypatch.setenv("QUIRE_USER", "ada")
    monkeypatch.chdir(home)

    def run(*arguments: object, stdin: str = "") -> Ended:
        monkeypatch.setattr(sys, "argv", ["quire", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return run


@pytest.fixture(params=["sqlite", "postgres"])
def quire_on_each(
    request: pytest.FixtureRequest, quire: Run, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """The same, on each database in turn."""
    if request.param == "postgres":
        monkeypatch.setenv("QUIRE_DATABASE_URL", request.getfixturevalue("pg_url"))
    return quire


Start = Callable[..., AbstractContextManager["subprocess.Popen[str]"]]


@pytest.fixture
def start(home: Path) -> Start:
    """Start a command as a process of its own, its output in a pipe; it ends with the block."""

    @contextlib.contextmanager
    def started(*arguments: str, code: str = "") -> Iterator[subprocess.Popen[str]]:
        program = ["-c", code] if code else ["-m", "quire"]
        process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=home,
            env=dict(os.environ),
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)

    return started
