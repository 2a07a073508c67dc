"""Problems that keep a tenant's tasks from running: broker, storage, queues without a worker.

Read from what workers and dispatchers have recorded, so no page waits for a failing service.
"""

from quire.clock import Instant, iso
from quire.control import broker_status
from quire.store import Connection
from quire.store.reports import outages, waiting


def listed(conn: Connection, tenant: str | None, *, now: Instant, max_silence: float) -> list[str]:
    """List all problems of a tenant, or of all tenants."""
    broker = broker_status.standing(conn, now=now, max_silence=max_silence)
    told = [broker["problem"]] if broker and broker["problem"] else []
    told += _unserved(conn, tenant, now, max_silence)
    return told + _away(conn, tenant, now)


def _unserved(conn: Connection, tenant: str | None, now: Instant, max_silence: float) -> list[str]:
    """List queues that have ready tasks and no worker."""
    workers = waiting.live_workers(conn, now=now, max_silence=max_silence)
    served = sorted({queue for worker in workers for queue in worker.queues})
    if not served:
        return []  # no worker at all: reported elsewhere
    return [
        f"Queue {queue!r} has ready tasks, but no running worker serves it. They serve "
        f"{', '.join(served)}. Start one with `quire worker --queue {queue}`."
        for queue in outages.queues_in_use(conn, tenant)
        if queue not in served
    ]


def _away(conn: Connection, tenant: str | None, now: Instant) -> list[str]:
    """List services that were unavailable when tasks last tried to use them."""
    return [
        f"Tasks wait for a service that was unavailable at {iso(each.at)}: {each.error} They retry "
        "every few seconds, which does not count as an attempt."
        for each in outages.outages(conn, tenant, now=now)
    ]
