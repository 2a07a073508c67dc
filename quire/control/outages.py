"""Problems that keep a tenant's tasks from running: broker, storage, queues without a worker.

Read from what workers and dispatchers have recorded, so no page waits for a failing service. No
task depends on the broker: when it is silent, workers poll the database.
"""

from typing import Any

from quire.clock import Instant, iso
from quire.model.records import WorkerRow
from quire.store import Connection
from quire.store.queue import doorbells
from quire.store.reports import outages, waiting

#: Seconds without activity of any dispatcher after which there is considered to be none.
UNATTENDED = 60.0
INSTEAD = "Until then, workers poll the database, which delays tasks by a few seconds."


def listed(conn: Connection, tenant: str | None, *, now: Instant, max_silence: float) -> list[str]:
    """List all problems of a tenant, or of all tenants."""
    broker = broker_state(conn, now=now, max_silence=max_silence)
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


def broker_state(
    conn: Connection, *, now: Instant, max_silence: float, queue: str | None = None
) -> dict[str, Any] | None:
    """Return the broker of the live workers, or of one queue; None if no worker uses one."""
    served = doorbells.served_workers(conn, now=now, max_silence=max_silence)
    served = [row for row in served if queue in (None, *_queues(row))]
    if not served:
        return None
    known = doorbells.states(conn)
    names = {name for row in served for name in _queues(row) if queue in (None, name)}
    rows = [known[name] for name in sorted(names) if name in known]
    return {
        "url": served[0].broker,
        "messages_sent": {row.queue: row.seq for row in rows},
        "last_sent_at": iso(max((row.rung_at for row in rows if row.rung_at), default=None)),
        "last_checked_at": iso(max((row.looked_at for row in rows if row.looked_at), default=None)),
        "failing_since": iso(min((r.failing_since for r in rows if r.failing_since), default=None)),
        "error": next((row.error for row in rows if row.error), None),
        "problem": _problem(served, rows, now),
    }


def _problem(
    served: list[WorkerRow], rows: list[doorbells.DoorbellState], now: Instant
) -> str | None:
    """Return the first problem, or None."""
    url = served[0].broker
    looked_at = max((row.looked_at for row in rows if row.looked_at), default=None)
    if looked_at is None or looked_at < now.wall - UNATTENDED:
        since = "yet" if looked_at is None else f"since {iso(looked_at)}"
        return (
            f"No scheduler has used the broker at {url} {since}, so workers are not notified of "
            f"new tasks. Start one with `quire scheduler`. {INSTEAD}"
        )
    for row in rows:
        if row.failing_since is not None:
            return (
                f"The broker at {url} has not answered since {iso(row.failing_since)} "
                f"({row.error}). Quire reconnects every few seconds. {INSTEAD}"
            )
    alone = [row for row in served if row.alone_since is not None]
    if alone:
        return (
            f"Worker {alone[0].id} has received nothing from the broker at {url} since "
            f"{iso(alone[0].alone_since)}, although there were tasks. It polls the database "
            "until the broker responds."
        )
    return None


def _queues(row: WorkerRow) -> list[str]:
    return row.queues.split(",")
