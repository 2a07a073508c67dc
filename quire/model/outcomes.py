"""From how a run ended to what becomes of its task: one decision, without database or clock."""

from quire.model.contracts import JobKind
from quire.model.records import Ending, Lease
from quire.model.retry import MAX_CRASHES, Backoff, delay_after_death
from quire.runtime.child.wire import Ended

#: The run was ended from outside, and its task is not to blame.
_INNOCENT = ("unstarted", "revoked", "stopped")
OUTAGE_SECONDS = 5.0
#: What a page can do to the process that reads it.
_POISON = ("crashed", "timeout", "memory", "stalled")
RANGE_CRASHES, PAGE_CRASHES = 2, 3
#: The run's own end was never seen.
_UNSEEN = ("crashed", "died", "timeout", "memory", "stalled")


def decide(
    ended: Ended, lease: Lease, kind: JobKind, spread: float, worker_id: str, *, asked: bool
) -> Ending:
    """Return the move for a run; `asked` says that this worker told it to stop.

    `spread` is a random number in 0…1 for the jitter of a retry.
    """
    if ended.outcome == "done":
        return _ending(ended, lease, worker_id, "finish", "done")
    if ended.outcome == "unstarted" or (ended.outcome in _INNOCENT and asked):
        return _ending(ended, lease, worker_id, "return", "returned", give_back=True)
    if ended.outcome in _UNSEEN and kind.at_most_once:
        why = f"{ended.error or ended.outcome}. It must not run twice: {kind.reason}"
        return _ending(ended, lease, worker_id, "lose", ended.outcome, error=why)
    if ended.outcome == "died":
        return _died(ended, lease, worker_id)
    if ended.outcome == "outage":
        # The database, or the bucket of blobs, was away: no fault of the task.
        wait = OUTAGE_SECONDS * (0.5 + spread)
        return _ending(ended, lease, worker_id, "retry", "outage", give_back=True, due_in=wait)
    if ended.outcome == "permanent":
        return _ending(ended, lease, worker_id, "fail", "failed")
    isolated = _isolated(ended, lease, worker_id)
    return isolated or _again(ended, lease, kind, spread, worker_id)


def _isolated(ended: Ended, lease: Lease, worker_id: str) -> Ending | None:
    """Cut in two a range that killed its process twice; set apart a page that did so thrice."""
    if lease.from_page is None or ended.outcome not in _POISON:
        return None
    error = ended.error or f"the run ended: {ended.outcome}"
    if lease.from_page != lease.to_page:
        if lease.attempt < RANGE_CRASHES:
            return None
        return _ending(ended, lease, worker_id, "split", ended.outcome, error=error, crashed=True)
    if lease.attempt < PAGE_CRASHES:
        return None
    return _ending(ended, lease, worker_id, "quarantine", ended.outcome, error=error, crashed=True)


def _died(ended: Ended, lease: Lease, worker_id: str) -> Ending:
    """A kill from outside: the attempt does not count, the death does."""
    if lease.crashes + 1 >= MAX_CRASHES:
        why = f"killed from outside {MAX_CRASHES} times while it ran"
        return _ending(ended, lease, worker_id, "lose", "died", error=why, crashed=True)
    wait = delay_after_death(lease.crashes + 1)
    move = "retry" if wait else "return"
    return _ending(ended, lease, worker_id, move, "died", give_back=True, crashed=True, due_in=wait)


def _again(ended: Ended, lease: Lease, kind: JobKind, spread: float, worker_id: str) -> Ending:
    crashed = ended.outcome in ("crashed", "memory")
    word = "failed" if ended.outcome in ("transient", *_INNOCENT) else ended.outcome
    error = ended.error or f"the run ended: {ended.outcome}"
    if lease.attempt >= lease.max_attempts:
        return _ending(ended, lease, worker_id, "fail", word, error=error, crashed=crashed)
    wait = ended.retry_after
    if wait is None:
        wait = Backoff(kind.backoff, kind.max_backoff).delay(lease.attempt, spread)
    return _ending(
        ended, lease, worker_id, "retry", word, error=error, crashed=crashed, due_in=wait
    )


def _ending(
    ended: Ended,
    lease: Lease,
    worker_id: str,
    move: str,
    outcome: str,
    *,
    error: str | None = None,
    give_back: bool = False,
    crashed: bool = False,
    due_in: float | None = None,
) -> Ending:
    return Ending(
        task_id=lease.task_id,
        fence=lease.fence,
        job_id=lease.job_id,
        move=move,
        outcome=outcome,
        result=ended.result,
        error=error if error is not None else ended.error,
        traceback=ended.traceback,
        began_at=ended.began_at or None,
        duration=ended.duration,
        peak_rss=ended.peak_rss,
        due_in=due_in,
        give_back=give_back,
        crashed=crashed,
        worker_id=worker_id,
    )
