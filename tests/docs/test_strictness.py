"""Where everything must run, a skip is a failure; on a person's machine it stays a skip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = """
import pytest

def test_needs_a_service():
    pytest.skip("no broker here")

@pytest.mark.xfail(strict=True)
def test_known_fault():
    assert False
"""


@pytest.mark.parametrize(("require_all", "exit_code"), [("1", 1), ("", 0)])
def test_a_skip_fails_exactly_where_everything_must_run(
    tmp_path: Path, require_all: str, exit_code: int
):
    (tmp_path / "test_one.py").write_text(SKIPPED)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.strictness", "-rs", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "QUIRE_REQUIRE_ALL": require_all},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == exit_code, ended.stdout + ended.stderr
    assert "no broker here" in ended.stdout
    assert "1 xfailed" in ended.stdout
