"""One run of a task: the values it passes through, and the decision how to settle it.

A worker claims a `Lease` and hands it to a child; a `RunReport` says how the run ended; `decide`
makes it a `Settlement`, which the store writes. No database and no clock here.
"""

from enum import StrEnum
from typing import NamedTuple

from quire.model.contracts import JobKind
from quire.model.records import API
from quire.model.retry import MAX_CRASHES, delay_after_death, delay_after_error

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


#: One run of a task, as (task, fence): a task that ran again has another fence.
Key = tuple[int, int]


class Lease(NamedTuple):
    """A worker's right to run a task, with all that the run needs; writes prove it by `fence`."""

    task_id: int
    fence: int
    job_id: int
    kind: str
    payload: str
    attempt: int
    max_attempts: int
    crashes: int
    queue: str
    priority: int
    fair_tag: float
    begin_at: float
    is_alone: bool = False  # must not share a batch with other tasks
    from_page: int | None = None
    to_page: int | None = None
    origin: str = API  # where its job was submitted
    owner_id: int = 0

    @property
    def key(self) -> Key:
        """The run, as (task, fence)."""
        return self.task_id, self.fence


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


class Settlement(NamedTuple):
    """The end of a run, as the store writes it: a move of the task and a row of its history."""

    task_id: int
    fence: int
    job_id: int
    move: str  # finish | skip | split | quarantine | retry | return | fail | lose
    outcome: str  # an `Outcome`, or the state that the handler ended the task in
    result: str | None = None
    error: str | None = None
    traceback: str | None = None
    began_at: float | None = None
    duration: float | None = None
    peak_rss: int | None = None
    due_in: float | None = None  # seconds until a retry
    refund_attempt: bool = False  # the attempt does not count
    crashed: bool = False  # the run counts as a crash
    worker_id: str | None = None

    @property
    def key(self) -> Key:
        """The run, as (task, fence)."""
        return self.task_id, self.fence


def decide(  # noqa: C901 (one case per outcome)
    report: RunReport,
    lease: Lease,
    kind: JobKind,
    spread: float,
    worker_id: str,
    *,
    asked: bool,
    ended_at: float = 0.0,
) -> Settlement:
    """Return how to settle a run that ended at `ended_at` (UTC seconds).

    `spread` is a random number from 0 to 1 for the jitter of a retry; `asked` tells that this
    worker told the run to stop.
    """
    settlement = _settlement(report, lease, worker_id, ended_at)
    match report.outcome:
        case Outcome.DONE:
            return settlement
        case Outcome.UNSTARTED:
            return _returned(settlement)
        case Outcome.REVOKED | Outcome.STOPPED if asked:
            began = report.duration is not None
            return _lost(settlement, kind) if kind.at_most_once and began else _returned(settlement)
        case (
            Outcome.CRASHED | Outcome.DIED | Outcome.TIMEOUT | Outcome.MEMORY | Outcome.STALLED
        ) if kind.at_most_once:
            return _lost(settlement, kind)
        case Outcome.DIED:
            return _died(settlement, lease)
        case Outcome.OUTAGE if not kind.at_most_once:
            wait = OUTAGE_SECONDS * (0.5 + spread)
            return settlement._replace(move="retry", refund_attempt=True, due_in=wait)
        case Outcome.PERMANENT:
            return settlement._replace(move="fail", outcome=Outcome.FAILED)
        case Outcome.CRASHED | Outcome.TIMEOUT | Outcome.MEMORY | Outcome.STALLED:
            return _isolated(settlement, lease) or _failed(settlement, report, lease, kind, spread)
        case _:
            return _failed(settlement, report, lease, kind, spread)


def _settlement(report: RunReport, lease: Lease, worker_id: str, ended_at: float) -> Settlement:
    """Return the settlement of a successful run; the other outcomes change it."""
    began_at = None
    if report.duration is not None:
        began_at = max(lease.begin_at, ended_at - report.duration)
    return Settlement(
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


def _returned(settlement: Settlement) -> Settlement:
    return settlement._replace(move="return", outcome=Outcome.RETURNED, refund_attempt=True)


def _lost(settlement: Settlement, kind: JobKind) -> Settlement:
    error = f"{settlement.error or settlement.outcome}. It must not run twice: {kind.reason}"
    return settlement._replace(move="lose", error=error)


def _died(settlement: Settlement, lease: Lease) -> Settlement:
    """Settle a run that someone else killed: the death counts, the attempt does not."""
    if lease.crashes + 1 >= MAX_CRASHES:
        error = f"killed from outside {MAX_CRASHES} times while it ran"
        return settlement._replace(move="lose", error=error, crashed=True)
    wait = delay_after_death(lease.crashes + 1)
    move = "retry" if wait else "return"
    return settlement._replace(move=move, refund_attempt=True, crashed=True, due_in=wait)


def _isolated(settlement: Settlement, lease: Lease) -> Settlement | None:
    """Split a page range that killed its process repeatedly; set aside a single page that did."""
    if lease.from_page is None:
        return None
    is_range = lease.from_page != lease.to_page
    if lease.attempt < (RANGE_CRASHES if is_range else PAGE_CRASHES):
        return None
    error = settlement.error or f"the run ended: {settlement.outcome}"
    return settlement._replace(
        move="split" if is_range else "quarantine", error=error, crashed=True
    )


def _failed(
    settlement: Settlement, report: RunReport, lease: Lease, kind: JobKind, spread: float
) -> Settlement:
    """Retry, or fail after the last attempt."""
    limits = (Outcome.CRASHED, Outcome.TIMEOUT, Outcome.MEMORY, Outcome.STALLED)
    settlement = settlement._replace(
        outcome=report.outcome if report.outcome in limits else Outcome.FAILED,
        error=report.error or f"the run ended: {report.outcome}",
        crashed=report.outcome in (Outcome.CRASHED, Outcome.MEMORY),
    )
    if lease.attempt >= lease.max_attempts:
        return settlement._replace(move="fail")
    wait = report.retry_after
    if wait is None:
        wait = delay_after_error(lease.attempt, kind.backoff, kind.max_backoff, spread)
    return settlement._replace(move="retry", due_in=wait)
