"""Records that the store takes and returns: immutable, without behaviour."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MAX_PRIORITY, MIN_PRIORITY = 1, 10
DEFAULT_PRIORITY = 5


#: Where a job was submitted: on the machine of the operator (command line, Python), or over the
#: API or the dashboard. A stored null is unknown, and counts as the API.
LOCAL, API = "local", "api"


class Owner(NamedTuple):
    """A user of a tenant; fair shares, policies and caps are per owner."""

    id: int
    tenant: str
    user: str
    weight: float
    policy: str | None
    max_running: int | None


class KindRow(NamedTuple):
    """A job kind as stored: the defaults of its tasks, and since when it is paused."""

    name: str
    queue: str
    max_attempts: int
    at_most_once: bool
    paused_at: float | None
    #: Users of the API may not submit it.
    is_internal: bool | None = None


class About(NamedTuple):
    """The document and pages that a task works on, and its exclusive key."""

    document_id: int | None = None
    generation: int | None = None
    from_page: int | None = None
    to_page: int | None = None
    digest: str | None = None
    exclusive_key: str | None = None

    @classmethod
    def whole(cls, document_id: int, generation: int) -> "About":
        """Return that a task works on a whole document: one such task at a time."""
        return cls(document_id, generation, exclusive_key=f"document {document_id}")


class EndedTask(NamedTuple):
    """A task of a document that has just ended."""

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
    """A job to create. Other submissions of the same call may name its `ref` in `after`."""

    kind: str
    payload: dict[str, Any] = field(default_factory=dict)
    priority: int = DEFAULT_PRIORITY
    run_at: float | None = None
    after: Sequence[int | str] = ()
    after_failure: str = "cancel"  # or "run": what happens if a predecessor fails
    platform: str | None = None
    account: str | None = None
    ref: str | None = None
    cost: float = 1.0
    max_attempts: int | None = None


class ChildTask(NamedTuple):
    """A task that a handler adds to its job."""

    kind: str
    payload: str | None
    cost: float = 1.0
    run_at: float | None = None
    after: tuple[int, ...] = ()  # positions of earlier children of the same transaction
    after_failure: str = "cancel"
    about: About = About()


#: States of a worker that is not known to have ended.
WORKER_LIVE = ("running", "draining")


class WorkerRow(NamedTuple):
    """A worker process, alive or ended."""

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
    #: The broker URL of its doorbells, without password; since when it claims without them.
    broker: str | None = None
    alone_since: float | None = None
