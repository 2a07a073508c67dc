"""Whether a worker is alive, where that can be known, and where it cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from quire import clock
from quire.clock import own_pid_start
from quire.model.records import WorkerRow
from quire.runtime.worker import liveness


def row(lock: Path, *, pid: int = 0, boot: str | None = None) -> WorkerRow:
    here = liveness.boot_and_namespace() if boot is None else boot
    return WorkerRow(
        "w", liveness.host(), pid or os.getpid(), here, own_pid_start(), str(lock), "default", 1,
        "running", 0.0, 0.0, None,
    )  # fmt: skip


def ended_pid() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_the_lock_tells_on_this_machine(tmp_path: Path):
    lock = liveness.hold(tmp_path / "w.lock")
    assert liveness.is_dead(row(lock.path)) is False and liveness.is_here(row(lock.path))
    os.close(lock.fd)
    assert liveness.is_dead(row(lock.path)) is True


def test_a_lock_that_is_held_tells_of_life_in_another_container_but_not_of_death(tmp_path: Path):
    lock = liveness.hold(tmp_path / "w.lock")
    there = row(lock.path, boot=f"{clock.boot_id()} pid:[1]")
    assert liveness.is_dead(there) is False and not liveness.is_here(there)
    os.close(lock.fd)
    assert liveness.is_dead(there) is None


def test_without_its_lock_file_the_process_tells(tmp_path: Path):
    assert liveness.is_dead(row(tmp_path / "none")) is False
    assert liveness.is_dead(row(tmp_path / "none", pid=ended_pid())) is True


def test_where_proc_is_hidden_only_a_pid_that_is_gone_is_a_dead_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(liveness, "pid_start", lambda pid: "")
    assert liveness.is_dead(row(tmp_path / "none")) is None
    assert liveness.is_dead(row(tmp_path / "none", pid=1)) is None
    assert liveness.is_dead(row(tmp_path / "none", pid=ended_pid())) is True


def test_a_boot_without_a_name_is_not_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    worker = row(tmp_path / "w.lock", boot=clock.UNKNOWN_BOOT)
    monkeypatch.setattr(liveness, "boot_id", lambda: clock.UNKNOWN_BOOT)
    monkeypatch.setattr(liveness, "boot_and_namespace", lambda: clock.UNKNOWN_BOOT)
    assert liveness.is_dead(worker) is None
    lock = liveness.hold(tmp_path / "w.lock")
    assert liveness.is_dead(worker) is False
    lock.release()


def test_a_container_is_another_place():
    namespace = str(Path("/proc/self/ns/pid").readlink())
    assert liveness.boot_and_namespace() == f"{clock.boot_id()} {namespace}"
