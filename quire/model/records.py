"""What the store returns: frozen, without behaviour, the same on every database."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MAX_PRIORITY, MIN_PRIORITY = 1, 10
DEFAULT_PRIORITY = 5


class Owner(NamedTuple):
    """Whose work it is; fair shares and policies are per owner."""

    id: int
    tenant: str
    user: str
    weight: float
    policy: str | None
    max_running: int | None


class KindRow(NamedTuple):
    """A job kind as the database knows it: what to write on its tasks, and whether it is paused."""

    name: str
    queue: str
    max_attempts: int
    at_most_once: bool
    paused_at: float | None


class About(NamedTuple):
    """What of a document a task works on, and which other tasks it must not run beside."""

    document_id: int | None = None
    generation: int | None = None
    from_page: int | None = None
    to_page: int | None = None
    digest: str | None = None
    exclusive_key: str | None = None


class EndedTask(NamedTuple):
    """A task of a document that has just ended, for those who keep documents."""

    id: int
    move: str
    state: str
    document_id: int
    generation: int
    from_page: int | None
    error: str | None
    outcome: str | None = None
    duration: float | None = None
    peak_rss: int | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """One job to be created. `ref` names it for `after` of others in the same call."""

    kind: str
    payload: dict[str, Any] = field(default_factory=dict)
    priority: int = DEFAULT_PRIORITY
    run_at: float | None = None
    after: Sequence[int | str] = ()
    after_failure: str = "cancel"  # or "run": what the failure of a predecessor does
    platform: str | None = None
    account: str | None = None
    ref: str | None = None
    cost: float = 1.0
    max_attempts: int | None = None


class ChildTask(NamedTuple):
    """A task to be inserted: by a submission, or by a handler as a child of its own task."""

    kind: str
    payload: str | None
    cost: float = 1.0
    run_at: float | None = None
    after: tuple[int, ...] = ()  # positions of earlier seeds of the same call
    after_failure: str = "cancel"
    about: About = About()


#: States of a worker that has not ended, as far as anyone has noticed.
WORKER_LIVE = ("running", "draining")


class WorkerRow(NamedTuple):
    """A worker process, alive or not."""

    id: str
    host: str
    pid: int
    boot_id: str
    pid_start: str
    lock_path: str
    queues: str
    concurrency: int
    state: str
    started_at: float
    heartbeat_at: float
    stopped_at: float | None
    #: What brings its doorbells, password hidden, and since when it has claimed without them.
    broker: str | None = None
    alone_since: float | None = None
