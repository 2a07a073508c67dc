"""Opens a database with all parts of the store wired together."""

from quire.clock import Clock
from quire.store.db.engine import LEASE_SECONDS, Database
from quire.store.documents import on_ended


def open_database(
    url: str,
    *,
    clock: Clock | None = None,
    synchronous: str = "full",
    lease_seconds: float = LEASE_SECONDS,
) -> Database:
    """Open `sqlite:///path` or `postgresql://…`; nothing is created before `migrate`."""
    return Database.open(
        url,
        on_ended=on_ended,
        clock=clock,
        synchronous=synchronous,
        lease_seconds=lease_seconds,
    )
