"""Explain a task by its first unmet condition: one function for each way to wait, run or end."""

from collections.abc import Callable
from typing import Any, NamedTuple

from quire import format
from quire.clock import Instant, iso
from quire.control import outages
from quire.model.states import JOB_ACTIVE, TASK_FINAL, JobState, Reason, TaskState, allowed
from quire.store import Connection
from quire.store.queue import claim
from quire.store.reports import waiting
from quire.url_secrets import masked

#: Predecessors that an explanation names.
SHOWN = 5


#: How an attempt ended, in words, by its outcome.
OUTCOMES = {
    "done": "it succeeded",
    "failed": "an error",
    "stopped": "its job was stopped",
    "died": "its worker died or its lease expired",
    "crashed": "its child process crashed",
    "timeout": "it exceeded its time limit",
    "memory": "it exceeded its memory limit",
    "stalled": "it made no progress for too long",
    "unstarted": "its worker returned it before it started",
    "returned": "its worker returned it",
    "outage": "something that it needs was unavailable",
}


class Finding(NamedTuple):
    """One explanation: a code for programs, sentences for people, and times."""

    code: str
    text: str
    next: str
    since: float | None = None
    until: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the explanation with its times as ISO 8601."""
        return {**self._asdict(), "since": iso(self.since), "until": iso(self.until)}


class Case(NamedTuple):
    """A task to explain."""

    conn: Connection
    row: Any
    now: Instant
    max_silence: float  # seconds without a heartbeat after which a worker counts as dead
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
    """Add why the task runs again."""
    if not case.history:
        return finding
    last = case.history[0]
    text = f"{finding.text} The previous attempt ended: {_outcome(last['outcome'], last['error'])}."
    return finding._replace(text=text)


def _ended_task(case: Case) -> Finding:
    row = case.row
    why = f": {masked(row.error)}" if row.error else ""
    spent = f" after {format.count(row.attempt, 'attempt')}" if row.attempt else ""
    texts = {
        TaskState.DONE: "It succeeded.",
        TaskState.FAILED: f"It failed{spent}{why}.",
        TaskState.CANCELLED: f"It was cancelled{why or ' with its job'}.",
        TaskState.SKIPPED: f"It was skipped: a newer task replaced it{why}.",
        TaskState.LOST: f"Its worker disappeared, and it must not run twice{why}.",
    }
    again = "Nothing. The task has ended."
    is_good = row.state in (TaskState.DONE, TaskState.SKIPPED)
    if not is_good and "retry" in allowed(row.job_state, has_failures=True):
        again = f"Nothing happens automatically. Run it again with `quire job retry {row.job_id}`."
    return Finding(row.state, texts[row.state], again, row.finished_at)


def _running(case: Case) -> Finding:
    row, now = case.row, case.now
    left = row.expires_at - now.lease
    until = now.wall + left
    worker = waiting.holder(case.conn, row.worker_id)
    who = f"worker {row.worker_id}"
    if worker is not None:
        who = f"worker {worker.id} (host {worker.host}, pid {worker.pid})"
    done = f", {format.percent(row.progress)}" if row.progress else ""
    told = f' Last progress message: "{row.message}".' if row.message else ""
    since = format.span(now.wall - row.begin_at)
    if left <= 0:
        text = f"The lease of {who} expired {format.span(-left)} ago."
        again = "is lost, because it must not run twice" if row.at_most_once else "runs again"
        step = f"The next sweep of any worker takes it back, and it {again}."
        return Finding("lease_ended", text, step, row.begin_at, until)
    text = (
        f"{who[0].upper()}{who[1:]} has been running it for {since}{done}: attempt {row.attempt} "
        f"of {row.max_attempts}. {_lease(case, worker, left)}{told}"
    )
    if worker is not None and worker.state in ("dead", "stopped"):
        text += f" That worker is {worker.state}."
    step = "It ends when its handler returns. If the worker dies, another one runs it again."
    if row.at_most_once:
        step = "It ends when its handler returns. If the worker dies, it is lost and not run again."
    return Finding("running", text, step, row.begin_at, until)


def _lease(case: Case, worker: Any, left: float) -> str:
    """Say whether the lease is being renewed, or how long its worker has been silent."""
    silence = 0.0 if worker is None else case.now.wall - worker.heartbeat_at
    if silence <= case.max_silence / 3:
        return f"Its lease is renewed continuously and would expire in {format.span(left)}."
    return (
        f"Its worker sent its last heartbeat {format.span(silence)} ago. If it stays silent, "
        f"another worker can take the task in {format.span(left)}."
    )


def _ready(case: Case) -> Finding:
    """Check what would still keep it from being claimed, then its place in the queue."""
    row = case.row
    if row.paused_at is not None:
        return _paused(case)
    workers = waiting.live_workers(case.conn, now=case.now, max_silence=case.max_silence)
    able = [each for each in workers if row.queue in each.queues and row.kind in each.kinds]
    if not able:
        return _no_worker(case, workers)
    limit = row.max_running
    if limit is not None and waiting.running_of(case.conn, row.owner_id) >= limit:
        return _cap(case)
    if waiting.is_kept_from(case.conn, row, able):
        text = (
            "Each worker keeps its last free child for tenants of which it runs nothing, and runs "
            f"tasks of tenant {row.tenant} already."
        )
        return Finding("kept", text, "It starts when one of those tasks ends.", row.ready_at)
    return _in_order(case)


def _in_order(case: Case) -> Finding:
    """Say where in the queue it is, and whether the broker has a problem."""
    row = case.row
    broker = outages.broker_state(
        case.conn, now=case.now, max_silence=case.max_silence, queue=row.queue
    )
    why = f" {broker['problem']}" if broker and broker["problem"] else ""
    front = waiting.ahead(case.conn, row)
    if not front.tasks:
        text = f"It is first in queue {row.queue!r}.{why}"
        return Finding("ready", text, "It starts when a worker is free.", row.ready_at)
    many = front.tasks > waiting.MOST
    count = f"more than {format.number(waiting.MOST)}" if many else format.number(front.tasks)
    ahead = "task is" if front.tasks == 1 else "tasks are"
    text = (
        f"It is in queue {row.queue!r} with priority {row.priority}. {count[0].upper()}{count[1:]} "
        f"{ahead} ahead of it, from {format.count(front.owners, 'user')}.{why}"
    )
    step = f"It starts when a worker is free and the {count} ahead of it have started."
    return Finding("ready", text, step, row.ready_at)


def _due(case: Case) -> Finding:
    row = case.row
    left = row.due_at - case.now.wall
    if left <= 0:
        text = f"It was due {format.span(-left)} ago."
        return Finding("due", text, "A worker queues it within seconds.", None)
    text = f"It is scheduled for {iso(row.due_at)}, in {format.span(left)}."
    return Finding("due", text, "It is queued then.", None, row.due_at)


def _backoff(case: Case) -> Finding:
    row = case.row
    last = case.history[0] if case.history else None
    how = _outcome(last["outcome"], last["error"]) if last else f"it failed: {row.error or ''}"
    left = max(row.due_at - case.now.wall, 0.0)
    text = f"Attempt {row.attempt} of {row.max_attempts} failed: {how}."
    if last and last["outcome"] == "outage":
        text = f"It waits: {how}. This does not count as an attempt."
    step = f"Next attempt in {format.span(left)} ({row.attempt + 1} of {row.max_attempts})."
    return Finding("backoff", text, step, None, row.due_at)


def _lock_held(case: Case) -> Finding:
    row = case.row
    tries = f"{row.lock_tries} of {claim.KEY_TRIES}"
    text = f"Another task was working on the same document when it was its turn ({tries} tries)."
    left = max(row.due_at - case.now.wall, 0.0)
    step = f"Next try in {format.span(left)}. It fails after {claim.KEY_TRIES} tries."
    return Finding("lock_held", text, step, None, row.due_at)


def _after(case: Case) -> Finding:
    row = case.row
    some = waiting.predecessors(case.conn, row.id, limit=SHOWN)
    if not some:
        text = f"It waits for {format.number(row.waits)} predecessors, but none exists."
        return Finding("after", text, "This should not happen. Run `quire doctor`.")
    named = [f"{b.noun} {b.id} ({_standing(b)})" for b in some]
    one = "it" if len(some) == 1 else "one of them"
    failing = f"If {one} fails or is cancelled, this task is cancelled too."
    if all(before.on_failure == "run" for before in some):
        failing = f"It runs even if {one} fails."
    text = f"It waits for {format.join_names(named, row.waits)}. {failing}"
    halted = [b for b in some if b.noun == "job" and b.state == JobState.STOPPED]
    if halted:
        step = f"Resume job {halted[0].id} with `quire job resume {halted[0].id}`, or cancel it."
        return Finding("after", text, step)
    what = f"{some[0].noun} {some[0].id} ends" if row.waits == 1 else "all of them have ended"
    return Finding("after", text, f"It is queued when {what}.")


def _standing(other: Any) -> str:
    """Return the state of another job or task, with its progress while it runs."""
    done = f", {format.percent(other.progress)}" if other.state == JobState.RUNNING else ""
    return f"{other.state or 'deleted'}{done}"


def _user_busy(case: Case) -> Finding:
    row = case.row
    other = waiting.user_job_first(case.conn, row)
    if other is None:
        text = "It waited for another job of the same user, which has ended."
        return Finding("user_busy", text, "It is queued at the next sweep.")
    text = (
        f"Job {other.id} of user {row.user_name} ({_standing(other)}) runs first: "
        "the user's policy is `queue`, one job at a time."
    )
    return Finding("user_busy", text, f"It is queued when job {other.id} ends.")


def _cap(case: Case) -> Finding:
    row, running = case.row, waiting.running_of(case.conn, case.row.owner_id)
    if row.max_running is None:
        text = f"User {row.user_name} had a limit on running tasks, which was removed."
        return Finding("cap", text, "It is queued at the next sweep.")
    text = f"User {row.user_name} has reached the limit: {running} of {row.max_running} tasks run."
    step = "It is queued when one of them ends."
    if running < row.max_running:
        step = "A worker queues it within seconds."
    return Finding("cap", text, step)


def _paused(case: Case) -> Finding:
    row = case.row
    if row.paused_at is None:
        text = f"Kind {row.kind!r} was paused and no longer is."
        return Finding("paused", text, f"`quire unpause {row.kind}` releases it.")
    text = f"Kind {row.kind!r} has been paused since {iso(row.paused_at)}."
    return Finding("paused", text, f"It starts after `quire unpause {row.kind}`.", row.paused_at)


def _stopped(case: Case) -> Finding:
    row = case.row
    if row.job_state in JOB_ACTIVE:
        text = f"Job {row.job_id} was stopped and has been resumed."
        return Finding("stopped", text, "It is queued within seconds.")
    if row.job_state == JobState.STOPPED:
        told = {name: getattr(row, name) for name in ("stopped_by", "stopped_why")}
        told |= {"state": row.job_state, "stopped_at": row.job_finished_at}
        text = f"Job {row.job_id} was {format.stopped(told, case.now.wall)}."
        step = f"Nothing runs until you resume it with `quire job resume {row.job_id}`."
        return Finding("stopped", text, step, row.job_finished_at)
    text = f"Job {row.job_id} is {row.job_state}."
    return Finding("stopped", text, "It is cancelled at the next sweep.", row.job_finished_at)


def _unknown_kind(case: Case) -> Finding:
    workers = waiting.live_workers(case.conn, now=case.now, max_silence=case.max_silence)
    row = case.row
    able = [c.id for c in workers if row.queue in c.queues and row.kind in c.kinds]
    if not able:
        return _no_worker(case, workers)
    text = f"A worker without kind {row.kind!r} returned it. Worker {able[0]} can run it."
    return Finding("no_worker", text, "It is queued at the next sweep.")


def _no_worker(case: Case, workers: list[waiting.WorkerAbilities]) -> Finding:
    row = case.row
    known = f"kind {row.kind!r} in queue {row.queue!r}"
    if not workers:
        text = f"No worker is alive to run {known}."
        return Finding("no_worker", text, "Start a worker with `quire worker`.", row.ready_at)
    serving = [worker for worker in workers if row.queue in worker.queues]
    if not serving:
        queues = sorted({queue for worker in workers for queue in worker.queues})
        text = f"No running worker serves queue {row.queue!r}. They serve {', '.join(queues)}."
        step = f"Start one that does: `QUIRE_QUEUES={row.queue} quire worker`."
        return Finding("no_worker", text, step, row.ready_at)
    kinds = sorted({kind for worker in serving for kind in worker.kinds})
    text = (
        f"No running worker of queue {row.queue!r} can run kind {row.kind!r}. "
        f"They can run {', '.join(kinds) or 'nothing'}."
    )
    step = "Start a worker with its plugin: `quire worker --plugin FILE`."
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


def _outcome(outcome: str, error: str | None) -> str:
    """Say how an attempt ended, with the first line of its error."""
    words = OUTCOMES.get(outcome, outcome)
    first = (error or "").strip().split("\n", 1)[0].rstrip(".")
    if outcome == "failed" and first:
        return first
    return f"{words} ({first})" if first and outcome != "died" else words
