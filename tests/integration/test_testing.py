"""`quire.testing`: how authors of job kinds test them, in one process and with their own clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quire import Permanent, Transient, job
from quire.control import jobs
from quire.model.records import Submission
from quire.store.reports import jobs as job_reports
from quire.testing import FakeClock, drain, scratch_app


@job("t.greet")
def greet(ctx: Any, name: str) -> str:
    return f"hello {name}"


@job("t.flaky", max_attempts=3, backoff=60)
def flaky(ctx: Any) -> int:
    if ctx.attempt < 3:
        raise Transient("not yet")
    return int(ctx.attempt)


@job("t.broken")
def broken(ctx: Any) -> None:
    raise Permanent("the file is empty")


@job("t.tree")
def tree(ctx: Any) -> None:
    with ctx.fenced() as tx:
        leaves = [tx.spawn("t.greet", {"name": str(n)}) for n in range(3)]
        tx.spawn("t.greet", {"name": "last"}, after=leaves)


@job("t.once")
def once(ctx: Any, made: int = 0) -> list[int]:
    number = ctx.step("number", lambda: 7)
    if ctx.attempt == 1:
        raise Transient("after the step", retry_after=0)
    return [number, ctx.step("number", lambda: 8)]


def job_row(app: Any, job_id: int) -> dict[str, Any]:
    with app.db.read() as conn:
        found = job_reports.job(conn, "default", job_id, now=0.0)
    assert found is not None
    return found


def test_drain_runs_what_was_submitted(tmp_path: Path):
    app = scratch_app(tmp_path, greet)
    job_id = app.submit("t.greet", name="Ada")
    [ended] = drain(app)
    assert (ended.outcome, ended.result) == ("done", '"hello Ada"')
    assert job_row(app, job_id)["state"] == "completed"
    assert drain(app) == []
    app.close()


def test_a_retry_waits_for_the_clock_of_the_test(tmp_path: Path):
    clock = FakeClock()
    app = scratch_app(tmp_path, flaky, clock=clock)
    job_id = app.submit("t.flaky")
    assert [one.outcome for one in drain(app)] == ["transient"]
    assert drain(app) == []
    clock.advance(80)
    assert [one.outcome for one in drain(app)] == ["transient"]
    clock.advance(160)
    assert [one.outcome for one in drain(app)] == ["done"]
    assert job_row(app, job_id)["state"] == "completed"
    app.close()


def test_a_permanent_error_fails_the_job_at_once(tmp_path: Path):
    app = scratch_app(tmp_path, broken)
    job_id = app.submit("t.broken")
    assert [one.outcome for one in drain(app)] == ["permanent"]
    row = job_row(app, job_id)
    assert (row["state"], row["error"]) == ("failed", "the file is empty")
    app.close()


def test_children_and_dependencies_run_in_order(tmp_path: Path):
    app = scratch_app(tmp_path, tree, greet)
    first = app.submit("t.tree")
    [second] = app.submit_many([Submission("t.greet", {"name": "after"}, after=[first])])
    results = [one.result for one in drain(app)]
    assert results[-2:] == ['"hello last"', '"hello after"']
    assert job_row(app, second)["state"] == "completed"
    app.close()


def test_a_step_is_kept_over_tries(tmp_path: Path):
    app = scratch_app(tmp_path, once)
    job_id = app.submit("t.once")
    drain(app)
    assert job_row(app, job_id)["result"] in ("[7, 7]", [7, 7])
    app.close()


def test_a_stopped_job_does_not_run_until_it_is_resumed(tmp_path: Path):
    app = scratch_app(tmp_path, greet)
    job_id = app.submit("t.greet", name="Ada")
    jobs.stop(app.caller, [job_id])
    assert drain(app) == []
    jobs.resume(app.caller, [job_id])
    assert [one.outcome for one in drain(app)] == ["done"]
    app.close()
