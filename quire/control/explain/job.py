"""Explain a job or task: what it waits for, which worker runs it, and what happens next.

The first unmet condition is the answer; later ones do not matter until it is met.
"""

from typing import Any

from quire import format
from quire.clock import Instant, json_values
from quire.control import queries
from quire.control.caller import Caller
from quire.control.explain.task import Case, Finding, of_task
from quire.errors import NotFound
from quire.model.states import JOB_ACTIVE, JobState, TaskState
from quire.store import Connection
from quire.store.reports import jobs as job_reports
from quire.store.reports import waiting
from quire.url_secrets import masked_values

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
        now = caller.db.now(conn)
        found = job_reports.by_id(conn, caller.tenant, [job_id], now=now.wall)
        if not found:
            raise queries.missing_job(job_id)
        [job], counts = found, found[0]["tasks"]
        is_active = job["state"] in JOB_ACTIVE
        states = MOST_ADVANCED if is_active or job["state"] == JobState.STOPPED else MOST_TELLING
        shown = waiting.tasks_of(conn, job_id, states, limit=SHOWN)
        cases = [_case(conn, task, now, caller.db.lease_seconds) for task in shown]
        finding = _active_job(job, cases) if is_active else _ended_job(job, now)
        reasons = waiting.count_reasons(conn, job_id) if "blocked" in counts else {}
        answers = [_answer(case) for case in cases]
    return {
        **{name: job[name] for name in ("id", "kind", "state", "failed_files")},
        **finding.as_json(),
        "attempts": cases[0].history if cases else [],
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
        return {**_answer(case), "job_id": row.job_id}


def _case(conn: Connection, row: Any, now: Instant, max_silence: float) -> Case:
    names = ("task_id", "attempt", "outcome", "error", "worker_id", "began_at", "finished_at")
    runs = waiting.last_attempts(conn, row.id, limit=SHOWN)
    history = [masked_values(json_values(run, names), "error") for run in runs]
    return Case(conn, row, now, max_silence, history)


def _answer(case: Case) -> dict[str, Any]:
    which = json_values(case.row, ("id", "kind", "state"))
    return {**which, **of_task(case).as_json(), "attempts": case.history}


def _active_job(job: dict[str, Any], cases: list[Case]) -> Finding:
    if not cases:
        return Finding(
            "no_open_task",
            f"It is {job['state']}, but none of its tasks is open.",
            "This should not happen. Run `quire doctor`.",
        )
    first = of_task(cases[0])
    opened = {state: n for state in MOST_ADVANCED if (n := job["tasks"].get(state))}
    if sum(opened.values()) == 1:
        return first
    counted = ", ".join(f"{count:,} {state}" for state, count in opened.items())
    return first._replace(text=f"Task {cases[0].row.id}: {first.text} Open tasks: {counted}.")


def _ended_job(one: dict[str, Any], now: Instant) -> Finding:
    verb = next((verb for verb in ("resume", "retry") if verb in one["allowed"]), "retry")
    again = f"`quire job {verb} {one['id']}`"
    total = sum(one["tasks"].values())
    how = format.stopped(one, now.wall) if one["stopped_at"] else "cancelled"
    match one["state"]:
        case JobState.STOPPED:
            done = f"{one['tasks'].get('done', 0):,} of {format.count(total, 'task')}"
            text = f"{how[0].upper()}{how[1:]}. {done} {'is' if total == 1 else 'are'} done."
            step = f"Nothing runs until you resume it with {again}."
        case JobState.COMPLETED if failed := one["failed_files"]:
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
            error = one["error"] if not one["stopped_why"] else None
            why = f": {error.rstrip('.')}" if error else ""
            text = f"{how[0].upper()}{how[1:]}{why}."
            step = f"Nothing happens automatically. Run it again with {again}."
    return Finding(one["state"], text, step, format.epoch(one["finished_at"]))
