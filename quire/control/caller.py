"""Who asks, and of which database: the first argument of every verb and query."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from quire.clock import Instant
from quire.model.access import BoundCorpus, Role
from quire.model.contracts import JobKind
from quire.model.records import LOCAL, WorkerRow
from quire.store import Connection
from quire.store.db.engine import Database

Options = ParamSpec("Options")
Result = TypeVar("Result")


def _has_heartbeat(row: WorkerRow, /, *, now: float, lease: float) -> bool:
    return now - row.heartbeat_at <= lease


@dataclass(frozen=True, slots=True)
class Caller:
    """A user of a tenant, the database, and what only this process knows."""

    db: Database
    tenant: str = "default"
    user: str = "default"
    policy: str = "all"
    #: Returns the job kinds of this process; a query loads no plugins.
    known: Callable[[], Mapping[str, JobKind]] = dict
    payload_limit: int = 1 << 20
    #: Where requests come from: `local` or `api`.
    origin: str = LOCAL
    #: Settings that decide which sources are never opened.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: The role of the user; who has a shell with the database may do everything.
    role: Role = Role.INSTANCE_ADMIN
    #: The corpus that the token is bound to: the rest of the tenant is not there.
    corpus: BoundCorpus | None = None
    #: The IP address of a request, for the audit log.
    address: str | None = None
    ring: Callable[[], None] = lambda: None
    #: Tells whether a worker is alive; injected, because lock files belong to the runtime.
    is_alive: Callable[..., bool] = _has_heartbeat


def verb(
    act: Callable[Concatenate[Caller, Connection, Instant, Options], Result],
) -> Callable[Concatenate[Caller, Options], Result]:
    """Run a function as one write transaction, which the database may ask to repeat."""

    @wraps(act)
    def run(caller: Caller, /, *args: Options.args, **options: Options.kwargs) -> Result:
        return caller.db.write(lambda conn, now: act(caller, conn, now, *args, **options))

    return run


def query(
    report: Callable[Concatenate[Connection, str, Options], Result],
) -> Callable[Concatenate[Caller, Options], Result]:
    """Run a report of the store in one read transaction, for the caller's tenant."""

    @wraps(report)
    def run(caller: Caller, /, *args: Options.args, **options: Options.kwargs) -> Result:
        with caller.db.read() as conn:
            return report(conn, caller.tenant, *args, **options)

    return run
