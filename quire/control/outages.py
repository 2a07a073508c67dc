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
    workers = waiting.live_workers(conn, now=now, max_silence=max_silence)
    served = sorted({queue for worker in workers for queue in worker.queues})
    return [
        *([broker["problem"]] if broker and broker["problem"] else []),
        *(
            f"Queue {queue!r} has ready tasks, but no running worker serves it. They serve "
            f"{', '.join(served)}. Start one with `quire worker --queue {queue}`."
            # That there is no worker at all is reported elsewhere.
            for queue in (outages.queues_in_use(conn, tenant) if served else ())
            if queue not in served
        ),
        *(
            f"Tasks wait for a service that was unavailable at {iso(each.at)}: {each.error} They "
            "retry every few seconds, which does not count as an attempt."
            for each in outages.outages(conn, tenant, now=now)
        ),
    ]
