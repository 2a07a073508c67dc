"""Finds the first unmet condition of a task, one function for each way to wait, run or end."""

from collections.abc import Callable
from typing import Any, NamedTuple

from quire.clock import Instant, iso
from quire.control import broker_status
from quire.control.explain.wording import (
    Finding,
    after_words,
    listed,
    number,
    outcome_words,
    share,
    span,
)
from quire.model.states import JOB_ACTIVE, TASK_FINAL, JobState, Reason, TaskState, allowed
from quire.store import Connection
from quire.store.queue import exclusive
from quire.store.reports import waiting

#: How many predecessors a finding names.
SHOWN = 5


class Case(NamedTuple):
    """A task under examination."""

    conn: Connection
    row: Any
    now: Instant
    patience: float  # seconds after which a silent worker counts as gone
    history: list[dict[str, Any]]


def of_task(case: Case) -> Finding:
    """Find the first condition that the task does not meet, or how it ended."""
    row = case.row
    if row.state in TASK_FINAL:
        return _ended_task(case)
    if row.job_state not in JOB_ACTIVE and row.state != TaskState.RUNNING:
        return _stopped(case)
    if row.state == TaskState.RUNNING:
        return _with_past(case, _running(case))
    if row.state == TaskState.READY:
        return _with_past(case, _ready(case))
    finding = BLOCKED_BY[row.reason](case)
    return finding if row.reason == Reason.BACKOFF else _with_past(case, finding)


def _with_past(case: Case, finding: Finding) -> Finding:
    """Add why the task runs once more."""
    if not case.history:
        return finding
    last = case.history[0]
    text = f"{finding.text} It ran before: {outcome_words(last['outcome'], last['error'])}."
    return finding._replace(text=text)


def _ended_task(case: Case) -> Finding:
    row = case.row
    why = f": {row.error}" if row.error else ""
    spent = f", attempt {row.attempt} of {row.max_attempts}" if row.attempt else ""
    texts = {
        TaskState.DONE: "It succeeded.",
        TaskState.FAILED: f"It failed{spent}{why}.",
        TaskState.CANCELLED: f"It was cancelled{why or ' with its job'}.",
        TaskState.SKIPPED: f"It was skipped: something later overtook it{why}.",
        TaskState.LOST: f"It was given up and its end was never seen{why}.",
    }
    again = "Nothing; it is over."
    if row.state not in (TaskState.DONE, TaskState.SKIPPED) and "retry" in allowed(row.job_state):
        again = f"Nothing; `quire job retry {row.job_id}` runs it again."
    return Finding(row.state, texts[row.state], again, row.finished_at)


def _running(case: Case) -> Finding:
    row, now = case.row, case.now
    left = row.expires_at - now.lease
    until = now.wall + left
    worker = waiting.holder(case.conn, row.worker_id)
    who = f"worker {row.worker_id}"
    if worker is not None:
        who = f"worker {worker.id} (host {worker.host}, pid {worker.pid})"
    done = f", {share(row.progress)}" if row.progress else ""
    told = f' It says: "{row.message}".' if row.message else ""
    since = span(now.wall - row.begin_at)
    if left <= 0:
        text = f"The lease of {who} ended {span(-left)} ago without renewal."
        again = "is lost: it must not run twice" if row.at_most_once else "runs again"
        step = f"It is taken back at the next sweep of any worker, and {again}."
        return Finding("lease_ended", text, step, row.begin_at, until)
    text = (
        f"{who[0].upper()}{who[1:]} has held it for {since}{done}: attempt {row.attempt} of "
        f"{row.max_attempts}. The lease lasts {span(left)} more{_renewal(case, worker)}.{told}"
    )
    if worker is not None and worker.state in ("dead", "stopped"):
        text += f" That worker is {worker.state}."
    step = "It ends when its handler returns; if the worker dies, another worker runs it again."
    if row.at_most_once:
        step = "It ends when its handler returns; if the worker dies, it is lost, not run again."
    return Finding("running", text, step, row.begin_at, until)


def _renewal(case: Case, worker: Any) -> str:
    """Say whether a lease is renewed, or how long its holder has been silent."""
    silence = 0.0 if worker is None else case.now.wall - worker.heartbeat_at
    if silence <= case.patience / 3:
        return " and is renewed"
    return (
        f"; its holder was last heard of {span(silence)} ago, and if it stays silent another "
        "worker may take it then"
    )


def _ready(case: Case) -> Finding:
    """Look for what a claim would still refuse, then count the queue."""
    row = case.row
    if row.paused_at is not None:
        return _paused(case)
    crews = waiting.crews(case.conn, now=case.now, patience=case.patience)
    if not any(row.queue in crew.queues and row.kind in crew.kinds for crew in crews):
        return _no_worker(case, crews)
    if row.max_running is not None:
        running = waiting.running_of(case.conn, row.owner_id)
        if running >= row.max_running:
            return _capped(case, running)
    return _in_order(case)


def _in_order(case: Case) -> Finding:
    """Say where in the queue it is, and what is wrong with who brings it."""
    row = case.row
    brought = broker_status.standing(
        case.conn, now=case.now, patience=case.patience, queue=row.queue
    )
    why = f" {brought['trouble']}" if brought and brought["trouble"] else ""
    front = waiting.ahead(case.conn, row)
    if not front.tasks:
        text = f"It is the first in queue {row.queue!r}.{why}"
        return Finding("ready", text, "Starts when a worker is free.", row.ready_at)
    many = front.tasks > waiting.MOST
    count = f"more than {number(waiting.MOST)}" if many else number(front.tasks)
    text = (
        f"It is in queue {row.queue!r} with priority {row.priority}; {count} "
        f"{'task is' if front.tasks == 1 else 'tasks are'} ahead of it, of "
        f"{number(front.owners)} {'user' if front.owners == 1 else 'users'}.{why}"
    )
    verb = "is" if front.tasks == 1 else "are"
    noun = "task" if front.tasks == 1 else "tasks"
    step = f"Starts when a worker is free; {count} {noun} {verb} ahead of it."
    return Finding("ready", text, step, row.ready_at)


def _due(case: Case) -> Finding:
    row = case.row
    left = row.due_at - case.now.wall
    if left <= 0:
        text = f"It was due {span(-left)} ago."
        return Finding("due", text, "A worker moves it to the queue at its next look.", None)
    text = f"It is not due until {iso(row.due_at)}, in {span(left)}."
    return Finding("due", text, "It joins the queue then.", None, row.due_at)


def _backoff(case: Case) -> Finding:
    row = case.row
    last = case.history[0] if case.history else None
    how = outcome_words(last["outcome"], last["error"]) if last else f"it failed: {row.error}"
    left = max(row.due_at - case.now.wall, 0.0)
    text = f"Attempt {row.attempt} of {row.max_attempts} ended: {how}. It backs off."
    if last and last["outcome"] == "outage":
        text = f"It waits: {how}. This costs no attempt."
    step = f"Attempt {row.attempt + 1} of {row.max_attempts} may start in {span(left)}."
    return Finding("backoff", text, step, None, row.due_at)


def _lock_held(case: Case) -> Finding:
    row = case.row
    tries = f"{row.lock_tries} of {exclusive.MOST_TRIES}"
    text = f"Another task of the same document ran when its turn came, {tries} times."
    left = max(row.due_at - case.now.wall, 0.0)
    step = f"It tries again in {span(left)}; after {exclusive.MOST_TRIES} times it fails."
    return Finding("lock_held", text, step, None, row.due_at)


def _after(case: Case) -> Finding:
    row = case.row
    some = waiting.predecessors(case.conn, row.id, limit=SHOWN)
    if not some:
        text = f"It counts {number(row.waits)} predecessors, but none is left."
        return Finding("after", text, "Nothing: this should not be. `quire doctor` reports it.")
    named = [f"{b.noun} {b.id} ({b.state or 'gone'}{_share_of(b)})" for b in some]
    text = f"Waits for {listed(named, row.waits)}. {after_words(some)}"
    halted = [b for b in some if b.noun == "job" and b.state == JobState.STOPPED]
    if halted:
        step = f"Nothing until `quire job resume {halted[0].id}` or a cancel of that job."
        return Finding("after", text, step)
    what = f"{some[0].noun} {some[0].id} ends" if row.waits == 1 else "all of them have ended"
    return Finding("after", text, f"It joins the queue when {what}.")


def _share_of(before: waiting.Before) -> str:
    return f", {share(before.progress)}" if before.state == JobState.RUNNING else ""


def _user_busy(case: Case) -> Finding:
    row = case.row
    other = waiting.user_job_first(case.conn, row)
    if other is None:
        text = "It waited for another job of the same user, and that one is over."
        return Finding("user_busy", text, "It is released at the next sweep.")
    done = f", {share(other.progress)}" if other.state == JobState.RUNNING else ""
    text = (
        f"Job {other.id} of user {row.user_name} ({other.state}{done}) goes first: "
        "the policy is `queue`, one job at a time."
    )
    return Finding("user_busy", text, f"It joins the queue when job {other.id} ends.")


def _cap(case: Case) -> Finding:
    return _capped(case, waiting.running_of(case.conn, case.row.owner_id))


def _capped(case: Case, running: int) -> Finding:
    row = case.row
    if row.max_running is None:
        text = f"User {row.user_name} had a cap on running tasks, which was lifted."
        return Finding("cap", text, "It is released at the next sweep.")
    text = f"User {row.user_name} runs {running} of at most {row.max_running} tasks."
    step = "It joins the queue when one of them ends."
    if running < row.max_running:
        step = "A worker moves it to the queue at its next look."
    return Finding("cap", text, step)


def _paused(case: Case) -> Finding:
    row = case.row
    if row.paused_at is None:
        text = f"Kind {row.kind!r} was paused and is not any more."
        return Finding("paused", text, f"`quire unpause {row.kind}` releases it.")
    text = f"Kind {row.kind!r} is paused since {iso(row.paused_at)}."
    return Finding(
        "paused", text, f"Nothing starts until `quire unpause {row.kind}`.", row.paused_at
    )


def _stopped(case: Case) -> Finding:
    row = case.row
    if row.job_state in JOB_ACTIVE:
        text = f"Job {row.job_id} was stopped and goes on again."
        return Finding("stopped", text, "It joins the queue in a moment.")
    if row.job_state == JobState.STOPPED:
        why = f": {row.job_error}" if row.job_error else " on request"
        text = f"Job {row.job_id} was stopped{why}."
        step = f"Nothing runs until `quire job resume {row.job_id}`."
        return Finding("stopped", text, step, row.job_finished_at)
    text = f"Job {row.job_id} is {row.job_state}."
    return Finding("stopped", text, "It is cancelled at the next sweep.", row.job_finished_at)


def _unknown_kind(case: Case) -> Finding:
    crews = waiting.crews(case.conn, now=case.now, patience=case.patience)
    row = case.row
    able = [c.id for c in crews if row.queue in c.queues and row.kind in c.kinds]
    if not able:
        return _no_worker(case, crews)
    text = f"A worker that does not know kind {row.kind!r} met it; worker {able[0]} knows it."
    return Finding("no_worker", text, "It joins the queue at the next sweep.")


def _no_worker(case: Case, crews: list[waiting.Crew]) -> Finding:
    row = case.row
    known = f"kind {row.kind!r} in queue {row.queue!r}"
    if not crews:
        text = f"No worker is alive to run {known}."
        return Finding(
            "no_worker", text, "Starts when a worker does: `quire worker`.", row.ready_at
        )
    serving = [crew for crew in crews if row.queue in crew.queues]
    if not serving:
        queues = sorted({queue for crew in crews for queue in crew.queues})
        text = f"No live worker serves queue {row.queue!r}; they serve {', '.join(queues)}."
        step = f"Starts when a worker serves it: QUIRE_QUEUES={row.queue} quire worker."
        return Finding("no_worker", text, step, row.ready_at)
    kinds = sorted({kind for crew in serving for kind in crew.kinds})
    text = (
        f"No live worker of queue {row.queue!r} knows kind {row.kind!r}; "
        f"they know {', '.join(kinds) or 'none'}."
    )
    step = "Starts when a worker with its plugin does: quire worker --plugin FILE."
    return Finding("no_worker", text, step, row.ready_at)


BLOCKED_BY: dict[str, Callable[[Case], Finding]] = {
    Reason.DUE: _due,
    Reason.BACKOFF: _backoff,
    Reason.LOCK_HELD: _lock_held,
    Reason.AFTER: _after,
    Reason.CAP: _cap,
    Reason.USER_BUSY: _user_busy,
    Reason.PAUSED: _paused,
    Reason.STOPPED: _stopped,
    Reason.NO_WORKER: _unknown_kind,
}
