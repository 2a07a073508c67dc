"""What keeps a tenant's work from going on, in words: the broker, the bucket, a queue of nobody.

It is read from what workers and dispatchers wrote down: no page waits for what is away.
"""

from quire.clock import Instant, iso
from quire.control import broker_status
from quire.store import Connection
from quire.store.reports import outages, waiting


def listed(conn: Connection, tenant: str | None, *, now: Instant, patience: float) -> list[str]:
    """Say everything that is wrong for a tenant, or for all; nothing where all is well."""
    broker = broker_status.standing(conn, now=now, patience=patience)
    told = [broker["trouble"]] if broker and broker["trouble"] else []
    told += _unserved(conn, tenant, now, patience)
    return told + _away(conn, tenant, now)


def _unserved(conn: Connection, tenant: str | None, now: Instant, patience: float) -> list[str]:
    """Say which queues have tasks that nobody is there to claim."""
    crews = waiting.crews(conn, now=now, patience=patience)
    served = sorted({queue for crew in crews for queue in crew.queues})
    if not served:
        return []  # there is no worker at all, which is told already
    return [
        f"No live worker serves queue {queue!r}, where tasks are ready; they serve "
        f"{', '.join(served)}. Start one with `quire worker --queue {queue}`."
        for queue in outages.queues_in_use(conn, tenant)
        if queue not in served
    ]


def _away(conn: Connection, tenant: str | None, now: Instant) -> list[str]:
    """Say what tasks wait for that was away when they tried last, as a bucket."""
    return [
        f"Tasks wait for what was away at {iso(each.at)}: {each.error} They try again every few "
        "seconds, which costs them no attempt."
        for each in outages.outages(conn, tenant, now=now)
    ]
