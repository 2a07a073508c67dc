"""Commands with real workers: waiting, watching, draining, and the demonstration."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

pytest_plugins = ["tests.integration.cli.cli_command"]

PLUGIN = """
from quire import Permanent, Transient, job


@job("good", max_attempts=3, backoff=0.01, max_backoff=0.01)
def good(ctx, x=0):
    ctx.progress(0.5, "half of it")
    if ctx.attempt == 1:
        raise Transient("not yet")
    return {"x": x}


@job("bad")
def bad(ctx):
    raise Permanent("it never works")
"""


@pytest.fixture
def plugin(home: Path) -> str:
    path = home / "kinds.py"
    path.write_text(PLUGIN)
    return str(path)


def test_submit_waits_for_the_end_and_tells_it_by_its_exit_code(quire_on_each, start, plugin):
    quire = quire_on_each
    with start("worker", "--concurrency", "2", "--plugin", plugin):
        good = quire("submit", "good", "--arg", "x=5", "--plugin", plugin, "--wait", "--json")
        assert (good.code, good.json["state"], good.json["result"]) == (0, "completed", {"x": 5})
        bad = quire("submit", "bad", "--plugin", plugin, "--wait")
        assert bad.code == 1
        assert "error: it never works" in bad.out
        many = quire("submit", "good", "--plugin", plugin, "--count", 3, "--wait", "--json")
        assert (many.code, many.json["states"]) == (0, {"completed": 3})
    one = quire("job", "show", 1, "--json").json
    assert one["attempts"][0]["outcome"] == "done"
    assert len(one["attempts"]) == 2
    assert "it never works" in quire("job", "show", 2).out
    assert "Permanent: it never works" in quire("job", "show", 2).out
    assert "failed, will retry: not yet" in quire("logs", 1).out
    assert quire("job", "show", 2, "--wait").code == 1
    assert quire("job", "show", 1, "--wait", "--json").json["state"] == "completed"
    assert quire("doctor").code == 0


def test_following_shows_a_job_until_it_is_over(quire, start):
    with start("worker"):
        quire("submit", "wait", "--arg", "seconds=0.5")
        assert quire("logs", 1, "-f").out.endswith("completed\n")
        quire("submit", "wait", "--arg", "seconds=0.5")
        frames = quire("job", "show", 2, "--watch", "--json").out.splitlines()
        assert json.loads(frames[-1])["state"] == "completed"
        quire("submit", "wait", "--arg", "seconds=0.1")
        assert "job 3  wait  completed" in quire("job", "show", 3, "--watch").out


def test_status_tells_living_workers_from_dead_ones(quire, start):
    quire("migrate")
    with start("worker", "--concurrency", "1") as process:
        quire("submit", "noop", "--wait")
        [worker] = quire("status", "--json").json["workers"]
        assert set(worker) >= {"id", "host", "pid", "alive", "running"}
        assert (worker["pid"], worker["alive"]) == (process.pid, True)
        assert "1 alive" in quire("status").out
        process.send_signal(signal.SIGKILL)
        process.wait()
        [worker] = quire("status", "--json").json["workers"]
        assert worker["alive"] is False


def test_a_drained_worker_ends_by_itself(quire, start):
    with start("worker", "--concurrency", "1") as process:
        quire("submit", "noop", "--wait")
        assert quire("worker", "drain", "w-none").code == 2
        assert (
            f"(pid {process.pid}) exits when its tasks have finished."
            in quire("worker", "drain").out
        )
        assert process.wait(timeout=60) == 0
    assert quire("worker", "drain").out == "No worker is running.\n"


def test_up_runs_everything_until_it_is_told_to_end(quire, start):
    with start("up", "--concurrency", "1") as process:
        assert quire("submit", "noop", "--wait").code == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    assert quire("status", "--json").json["workers"] == []


@pytest.mark.parametrize("command", ["up", "worker", "scheduler"])
def test_what_could_never_run_is_refused_at_once(quire, command):
    ended = quire(command, "--plugin", "absent.py")
    assert ended.code == 2
    assert "no such file" in ended.err
    if command != "scheduler":
        assert quire(command, "--concurrency", 5000).code == 2


def test_the_demonstration_shows_failures_and_hits_and_its_second_run_reads_nothing(start, quire):
    with start("demo") as first:
        out, err = first.communicate(timeout=110)
    assert first.returncode == 0, out + err
    assert "10 of 10 files done, 2 failed" in err
    assert "these two files are unreadable on purpose" in out
    assert "handbook.pdf" in out.partition("search    ")[2]
    with start("demo") as second:
        out, err = second.communicate(timeout=60)
    assert second.returncode == 0, out + err
    assert "nothing was read again" in out
    assert (
        quire("status", "--json").json["documents"] | {"success": 8, "failed": 2}
        == (quire("status", "--json").json["documents"])
    )
