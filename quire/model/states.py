"""The state machines of tasks, jobs and documents, as data.

CHECK constraints, the WHERE clauses of every transition, the charts in the docs, and the buttons
of the dashboard are derived from these tables. Only the `transition` modules of the store write a
state, and they make no move that is not listed here.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from quire.errors import BadInput


class TaskState(StrEnum):
    """The states of a task."""

    BLOCKED = "blocked"  # not claimable; `reason` says why, `due_at` until when if known
    READY = "ready"  # claimable now
    RUNNING = "running"  # leased to a worker
    DONE = "done"
    FAILED = "failed"  # a permanent error, or no attempts left
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # superseded before any costly work
    LOST = "lost"  # given up; its outcome is unknown


class JobState(StrEnum):
    """The states of a job."""

    PENDING = "pending"  # no task of it has been claimed yet
    RUNNING = "running"
    COMPLETED = "completed"  # every task succeeded, but for files that failed among others
    FAILED = "failed"  # a task failed or was lost, and no file made it; can be resumed
    STOPPED = "stopped"  # by a person or a policy; can be resumed
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Why a task is blocked."""

    DUE = "due"  # its time has not come
    BACKOFF = "backoff"  # failed, runs again later
    AFTER = "after"  # a predecessor has not ended
    CAP = "cap"  # its owner runs as many tasks as allowed
    USER_BUSY = "user_busy"  # its owner's other job runs first
    PAUSED = "paused"  # its kind is paused
    STOPPED = "stopped"  # its job is stopped
    NO_WORKER = "no_worker"  # the worker that tried to claim it does not know its kind
    LOCK_HELD = "lock_held"  # another task with the same exclusive key runs


class DocumentState(StrEnum):
    """Where a document stands; `locked` is another word for queued or indexing."""

    NOT_INDEXED = "not_indexed"
    QUEUED = "queued"
    INDEXING = "indexing"
    SUCCESS = "success"
    FAILED = "failed"


class GenerationState(StrEnum):
    """What became of one (re)index of a document."""

    BUILDING = "building"
    LIVE = "live"  # what search sees
    REPLACED = "replaced"  # by a newer live one
    FAILED = "failed"
    DROPPED = "dropped"  # cancelled, or overtaken by a newer one before it was live

    @property
    def is_over(self) -> bool:
        """Tell whether nothing will be written under it or read from it."""
        return self not in (GenerationState.BUILDING, GenerationState.LIVE)


class Move(NamedTuple):
    """A named transition.

    A task that is running leaves that state in one of two ways. A fenced move is made by the
    holder of the lease and names its fence. Any other ends the lease and raises the fence.
    """

    sources: frozenset[str]
    target: str
    fenced: bool = False
    by_user: bool = False  # a person may ask for it


def _move(*sources: str, to: str, fenced: bool = False, by_user: bool = False) -> Move:
    return Move(frozenset(sources), to, fenced, by_user)


T, J = TaskState, JobState

TASK_MOVES: dict[str, Move] = {
    "release": _move(T.BLOCKED, to=T.READY),
    "wait": _move(T.BLOCKED, to=T.BLOCKED),  # still blocked, for another reason
    "hold": _move(T.READY, to=T.BLOCKED),
    "lock_out": _move(T.READY, to=T.FAILED),  # another task held its exclusive key every time
    "claim": _move(T.READY, to=T.RUNNING),
    "finish": _move(T.RUNNING, to=T.DONE, fenced=True),
    "skip": _move(T.RUNNING, to=T.SKIPPED, fenced=True),
    "split": _move(T.RUNNING, to=T.SKIPPED, fenced=True),
    "quarantine": _move(T.RUNNING, to=T.SKIPPED, fenced=True),
    "retry": _move(T.RUNNING, to=T.BLOCKED, fenced=True),
    "return": _move(T.RUNNING, to=T.READY, fenced=True),
    "fail": _move(T.RUNNING, to=T.FAILED, fenced=True),
    "lose": _move(T.RUNNING, to=T.LOST, fenced=True),
    "reap": _move(T.RUNNING, to=T.READY),  # its worker died
    "reap_later": _move(T.RUNNING, to=T.BLOCKED),  # its workers died more than twice
    "give_up": _move(T.RUNNING, to=T.LOST),  # it died too often, or must not run twice
    "stop": _move(T.RUNNING, to=T.BLOCKED),
    "cancel": _move(T.BLOCKED, T.READY, T.RUNNING, to=T.CANCELLED),
    "cascade": _move(T.BLOCKED, to=T.CANCELLED),  # what it waited for was unsuccessful
    "overtake": _move(T.BLOCKED, T.READY, T.RUNNING, to=T.SKIPPED),
    "revive": _move(T.FAILED, T.LOST, T.CANCELLED, to=T.BLOCKED),
}
JOB_MOVES: dict[str, Move] = {
    "start": _move(J.PENDING, to=J.RUNNING),
    "complete": _move(J.PENDING, J.RUNNING, to=J.COMPLETED),
    "fail": _move(J.PENDING, J.RUNNING, to=J.FAILED),
    "stop": _move(J.PENDING, J.RUNNING, to=J.STOPPED, by_user=True),
    "cancel": _move(J.PENDING, J.RUNNING, J.STOPPED, to=J.CANCELLED, by_user=True),
    "resume": _move(J.STOPPED, J.FAILED, to=J.PENDING, by_user=True),
    "retry": _move(J.FAILED, J.CANCELLED, J.STOPPED, to=J.PENDING, by_user=True),
    "retry_files": _move(J.COMPLETED, to=J.PENDING),  # by `retry`, if it has failed files
    # Its tasks of one document run again; the rest of the job may still be at work.
    "reopen": _move(*J, to=J.PENDING),
}

D = DocumentState
DOCUMENT_MOVES: dict[str, Move] = {
    "queue": _move(D.NOT_INDEXED, D.SUCCESS, D.FAILED, to=D.QUEUED),
    "requeue": _move(D.QUEUED, D.INDEXING, to=D.QUEUED),  # it was stuck: locked, without a task
    "start": _move(D.QUEUED, D.INDEXING, to=D.INDEXING, fenced=True),
    "restart": _move(D.NOT_INDEXED, D.SUCCESS, D.FAILED, to=D.INDEXING, fenced=True),
    "swap": _move(D.INDEXING, to=D.SUCCESS, fenced=True),
    "fail": _move(D.QUEUED, D.INDEXING, to=D.FAILED),
    "drop": _move(D.QUEUED, D.INDEXING, to=D.NOT_INDEXED),  # cancelled, never indexed before
    "restore": _move(D.QUEUED, D.INDEXING, to=D.SUCCESS),  # cancelled, an older one is live
}
G = GenerationState
GENERATION_MOVES: dict[str, Move] = {
    "swap": _move(G.BUILDING, to=G.LIVE, fenced=True),
    "replace": _move(G.LIVE, to=G.REPLACED),
    "fail": _move(G.BUILDING, to=G.FAILED),
    "drop": _move(G.BUILDING, to=G.DROPPED),
}
DOCUMENT_LOCKED = (D.QUEUED, D.INDEXING)

TASK_OPEN = (T.BLOCKED, T.READY, T.RUNNING)
TASK_FINAL = tuple(s for s in T if s not in TASK_OPEN)
JOB_ACTIVE = (J.PENDING, J.RUNNING)
JOB_DELETABLE = tuple(s for s in J if s not in JOB_ACTIVE)


def allowed(state: str, *, has_failures: bool = False) -> list[str]:
    """List the verbs that a person may use on a job in `state`."""
    verbs = [name for name, move in JOB_MOVES.items() if move.by_user and state in move.sources]
    if has_failures and state in JOB_MOVES["retry_files"].sources:
        verbs.append("retry")
    return verbs + (["delete"] if state in JOB_DELETABLE else [])


def states_for(verb: str) -> list[str]:
    """List the states of a job that allow a verb, whatever else is true of the job."""
    if verb == "delete":
        return list(JOB_DELETABLE)
    if verb == "reprioritise":
        return [*JOB_ACTIVE, J.STOPPED]
    return [state for state in J if state in JOB_MOVES[verb].sources]


def parse_states(given: Sequence[str] | None, known: Iterable[str]) -> list[str] | None:
    """Parse the names of states that a person or a program gave; None means any state."""
    names = list(known)
    wanted = [part for text in given or () for part in text.split(",") if part]
    for each in wanted:
        if each not in names:
            raise BadInput(f"state {each[:40]!r}: not one of {', '.join(names)}.")
    return wanted or None


def chart(moves: dict[str, Move]) -> str:
    """Draw the moves as a Mermaid state diagram."""
    lines = [
        f"    {source} --> {move.target}: {name}"
        for name, move in moves.items()
        for source in sorted(move.sources)
    ]
    return "\n".join(["stateDiagram-v2", *lines])
