"""Explain a job or task: what it waits for, which worker runs it, and what happens next.

The first unmet condition is the answer; later ones do not matter until it is met.
"""

from typing import Any

from quire import format
from quire.clock import Instant, iso
from quire.control.caller import Caller
from quire.control.explain.task import Case, Finding, of_task
from quire.errors import NotFound
from quire.model.states import JOB_ACTIVE, JobState, TaskState
from quire.store import Connection
from quire.store.reports import jobs as job_reports
from quire.store.reports import waiting

#: Attempts and tasks that an explanation lists.
SHOWN = 5
#: States of tasks in the order in which they are explained: of open jobs, and of ended ones.
MOST_ADVANCED = (TaskState.RUNNING, TaskState.READY, TaskState.BLOCKED)
MOST_TELLING = (
    TaskState.FAILED,
    TaskState.LOST,
    TaskState.CANCELLED,
    TaskState.SKIPPED,
    TaskState.DONE,
)


def explain_job(caller: Caller, job_id: int, *, task_id: int | None = None) -> dict[str, Any]:
    """Explain a job by its most advanced open task, or by how it ended; or one of its tasks."""
    if task_id is not None:
        answer = explain_task(caller, task_id)
        if answer["job_id"] != job_id:
            raise NotFound(f"task {task_id}: job {job_id} has no such task.")
        return answer
    with caller.db.read() as conn:
        row = waiting.job(conn, caller.tenant, job_id)
        if row is None:
            raise NotFound(f"job {job_id}: no such job. `quire jobs` lists them.")
        now = caller.db.now(conn)
        is_open = row.state in (*JOB_ACTIVE, JobState.STOPPED)
        states = MOST_ADVANCED if is_open else MOST_TELLING
        shown = waiting.tasks_of(conn, job_id, states, limit=SHOWN)
        cases = [_case(conn, task, now, caller.db.lease_seconds) for task in shown]
        if row.state in JOB_ACTIVE:
            finding = _active_job(row, cases)
        else:
            [one] = job_reports.by_id(conn, caller.tenant, [job_id], now=now.wall)
            finding = _ended_job(row, one, now)
        reasons = waiting.count_reasons(conn, job_id) if row.tasks_blocked else {}
        answers = [_answer(case.row, of_task(case), case.history) for case in cases]
    counts = {s.value: n for s in TaskState if (n := getattr(row, f"tasks_{s}"))}
    return {
        **_answer(row, finding, cases[0].history if cases else []),
        "tasks": answers if sum(counts.values()) > 1 else [],
        "counts": {**counts, **({"reasons": reasons} if reasons else {})},
    }


def explain_task(caller: Caller, task_id: int) -> dict[str, Any]:
    """Explain one task."""
    with caller.db.read() as conn:
        row = waiting.task(conn, caller.tenant, task_id)
        if row is None:
            raise NotFound(f"task {task_id}: no such task. `quire job show` lists those of a job.")
        case = _case(conn, row, caller.db.now(conn), caller.db.lease_seconds)
        return {**_answer(row, of_task(case), case.history), "job_id": row.job_id}


def _case(conn: Connection, row: Any, now: Instant, max_silence: float) -> Case:
    names = ("task_id", "attempt", "outcome", "error", "worker_id")
    history = [
        {
            **{name: getattr(run, name) for name in names},
            "began_at": iso(run.began_at),
            "finished_at": iso(run.finished_at),
        }
        for run in waiting.last_attempts(conn, row.id, limit=SHOWN)
    ]
    return Case(conn, row, now, max_silence, history)


def _answer(row: Any, finding: Finding, history: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "state": row.state,
        "code": finding.code,
        "text": finding.text,
        "next": finding.next,
        "since": iso(finding.since),
        "until": iso(finding.until),
        "attempts": history,
    }


def _active_job(row: Any, cases: list[Case]) -> Finding:
    if not cases:
        return Finding(
            "no_open_task",
            f"It is {row.state}, but none of its tasks is open.",
            "This should not happen. Run `quire doctor`.",
        )
    first = of_task(cases[0])
    others = row.tasks_blocked + row.tasks_ready + row.tasks_running - 1
    if not others:
        return first
    kinds_of = [
        f"{count:,} {state}" for state in MOST_ADVANCED if (count := getattr(row, f"tasks_{state}"))
    ]
    text = f"Task {cases[0].row.id}: {first.text} Open tasks: {', '.join(kinds_of)}."
    return first._replace(text=text)


def _ended_job(row: Any, one: dict[str, Any], now: Instant) -> Finding:
    verb = next((verb for verb in ("resume", "retry") if verb in one["allowed"]), "retry")
    again = f"`quire job {verb} {row.id}`"
    total = sum(one["tasks"].values())
    how = format.stopped(one, now.wall) if one["stopped_at"] else "cancelled"
    match row.state:
        case JobState.STOPPED:
            done = f"{row.tasks_done:,} of {format.count(total, 'task')}"
            text = f"{how[0].upper()}{how[1:]}. {done} {'is' if total == 1 else 'are'} done."
            step = f"Nothing runs until you resume it with {again}."
        case JobState.COMPLETED if failed := one["files"].get("failed"):
            text = f"{failed:,} of {format.count(sum(one['files'].values()), 'file')} failed."
            step = f"Nothing happens automatically. Retry what failed with {again}."
        case JobState.COMPLETED:
            text, step = "Every task succeeded.", "Nothing. The job is complete."
        case JobState.FAILED:
            text = one["error"] or "It failed."
            if total == 1:
                text = f"It failed: {text}"
            step = f"Nothing happens automatically. Retry what failed with {again}."
        case _:
            why = f": {row.error.rstrip('.')}" if row.error and not one["stopped_why"] else ""
            text = f"{how[0].upper()}{how[1:]}{why}."
            step = f"Nothing happens automatically. Run it again with {again}."
    return Finding(row.state, text, step, row.finished_at)
