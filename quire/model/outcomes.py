"""How a run of a task ended, and what becomes of the task: one decision, no database, no clock."""

from enum import StrEnum
from typing import NamedTuple

from quire.model.contracts import JobKind
from quire.model.records import Ending, Lease
from quire.model.retry import MAX_CRASHES, Backoff, delay_after_death

#: Average delay before a task is retried when the database or the blob storage was unavailable.
OUTAGE_SECONDS = 5.0
#: Attempts after which a page range that kills its process is split, and a single page is set
#: aside.
RANGE_CRASHES, PAGE_CRASHES = 2, 3


class Outcome(StrEnum):
    """How a run ended."""

    # Reported by the child.
    DONE = "done"
    SETTLED = "settled"  # the handler committed the end of the task itself
    TRANSIENT = "transient"  # an error that a retry may fix
    PERMANENT = "permanent"  # an error that a retry cannot fix
    OUTAGE = "outage"  # the database or the blob storage was unavailable
    STOPPED = "stopped"  # the handler obeyed a stop

    # Reported by the worker.
    REVOKED = "revoked"  # skipped before it started, or killed after a stop
    UNSTARTED = "unstarted"  # its child ended before it started
    CRASHED = "crashed"  # its child ended because of it
    DIED = "died"  # its child was killed by someone else
    TIMEOUT = "timeout"
    MEMORY = "memory"
    STALLED = "stalled"  # no progress for too long

    # Recorded in the history of attempts only.
    FAILED = "failed"  # a transient or permanent error
    RETURNED = "returned"  # the lease was given back


class RunReport(NamedTuple):
    """The report of one run; `result` is JSON text, `duration` is None if it never started."""

    task_id: int
    fence: int
    outcome: Outcome
    result: str | None = None
    error: str | None = None
    traceback: str | None = None
    duration: float | None = None
    retry_after: float | None = None
    peak_rss: int | None = None


def decide(  # noqa: C901 (one case per outcome)
    report: RunReport,
    lease: Lease,
    kind: JobKind,
    spread: float,
    worker_id: str,
    *,
    asked: bool,
    ended_at: float = 0.0,
) -> Ending:
    """Return how to settle a run that ended at `ended_at` (UTC seconds).

    `spread` is a random number from 0 to 1 for the jitter of a retry; `asked` tells that this
    worker told the run to stop.
    """
    ending = _ending(report, lease, worker_id, ended_at)
    match report.outcome:
        case Outcome.DONE:
            return ending
        case Outcome.UNSTARTED:
            return _returned(ending)
        case Outcome.REVOKED | Outcome.STOPPED if asked:
            return _returned(ending)
        case (
            Outcome.CRASHED | Outcome.DIED | Outcome.TIMEOUT | Outcome.MEMORY | Outcome.STALLED
        ) if kind.at_most_once:
            error = f"{report.error or report.outcome}. It must not run twice: {kind.reason}"
            return ending._replace(move="lose", error=error)
        case Outcome.DIED:
            return _died(ending, lease)
        case Outcome.OUTAGE:
            wait = OUTAGE_SECONDS * (0.5 + spread)
            return ending._replace(move="retry", give_back=True, due_in=wait)
        case Outcome.PERMANENT:
            return ending._replace(move="fail", outcome=Outcome.FAILED)
        case Outcome.CRASHED | Outcome.TIMEOUT | Outcome.MEMORY | Outcome.STALLED:
            return _isolated(ending, lease) or _failed(ending, report, lease, kind, spread)
        case _:
            return _failed(ending, report, lease, kind, spread)


def _ending(report: RunReport, lease: Lease, worker_id: str, ended_at: float) -> Ending:
    """Return the settlement of a successful run; the other outcomes change it."""
    began_at = None
    if report.duration is not None:
        began_at = max(lease.begin_at, ended_at - report.duration)
    return Ending(
        task_id=lease.task_id,
        fence=lease.fence,
        job_id=lease.job_id,
        move="finish",
        outcome=report.outcome,
        result=report.result,
        error=report.error,
        traceback=report.traceback,
        began_at=began_at,
        duration=report.duration or 0.0,
        peak_rss=report.peak_rss,
        worker_id=worker_id,
    )


def _returned(ending: Ending) -> Ending:
    return ending._replace(move="return", outcome=Outcome.RETURNED, give_back=True)


def _died(ending: Ending, lease: Lease) -> Ending:
    """Settle a run that someone else killed: the death counts, the attempt does not."""
    if lease.crashes + 1 >= MAX_CRASHES:
        error = f"killed from outside {MAX_CRASHES} times while it ran"
        return ending._replace(move="lose", error=error, crashed=True)
    wait = delay_after_death(lease.crashes + 1)
    move = "retry" if wait else "return"
    return ending._replace(move=move, give_back=True, crashed=True, due_in=wait)


def _isolated(ending: Ending, lease: Lease) -> Ending | None:
    """Split a page range that killed its process repeatedly; set aside a single page that did."""
    if lease.from_page is None:
        return None
    is_range = lease.from_page != lease.to_page
    if lease.attempt < (RANGE_CRASHES if is_range else PAGE_CRASHES):
        return None
    error = ending.error or f"the run ended: {ending.outcome}"
    return ending._replace(move="split" if is_range else "quarantine", error=error, crashed=True)


def _failed(
    ending: Ending, report: RunReport, lease: Lease, kind: JobKind, spread: float
) -> Ending:
    """Retry, or fail after the last attempt."""
    limits = (Outcome.CRASHED, Outcome.TIMEOUT, Outcome.MEMORY, Outcome.STALLED)
    ending = ending._replace(
        outcome=report.outcome if report.outcome in limits else Outcome.FAILED,
        error=report.error or f"the run ended: {report.outcome}",
        crashed=report.outcome in (Outcome.CRASHED, Outcome.MEMORY),
    )
    if lease.attempt >= lease.max_attempts:
        return ending._replace(move="fail")
    wait = report.retry_after
    if wait is None:
        wait = Backoff(kind.backoff, kind.max_backoff).delay(lease.attempt, spread)
    return ending._replace(move="retry", due_in=wait)
