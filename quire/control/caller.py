"""Who asks, and of which database: the first argument of every verb and query."""

from collections.abc import Callable
from dataclasses import dataclass, field

from quire.model.contracts import JobKind
from quire.model.records import WorkerRow
from quire.store.db.engine import Database


def _has_heartbeat(row: WorkerRow, /, *, now: float, lease: float) -> bool:
    return now - row.heartbeat_at <= lease


@dataclass(frozen=True, slots=True)
class Caller:
    """A user of a tenant, the database, and what only this process knows."""

    db: Database
    tenant: str = "default"
    user: str = "default"
    policy: str = "all"
    known: dict[str, JobKind] = field(default_factory=dict)
    payload_limit: int = 1 << 20
    #: The IP address of a request, for the audit log.
    address: str | None = None
    ring: Callable[[], None] = lambda: None
    #: Tells whether a worker is alive; injected, because lock files belong to the runtime.
    is_alive: Callable[..., bool] = _has_heartbeat
