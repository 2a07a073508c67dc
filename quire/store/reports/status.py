"""Counts by state and live workers, in plain SQL that runs on any driver.

`run` takes a statement with `:name` parameters: SQLAlchemy runs it for the API, and SQLite's driver
alone for `quire status`, which would spend most of its time importing SQLAlchemy.
"""

from quire.clock import Instant
from quire.model.records import WORKER_LIVE, WorkerRow
from quire.model.states import DocumentState, JobState, TaskState
from quire.store.db.sqlite_driver import Run

#: Up to this many jobs are counted along the owners' index; with more, a scan of the table is
#: cheaper.
FEW = 20_000
#: Seconds for which an attempt that met an outage counts, and until the next attempt after it.
OUTAGE_RECENT, OUTAGE_AHEAD = 60.0, 8.0

_MINE = "IN (SELECT id FROM owners WHERE tenant = :tenant)"
_FEW = f"SELECT count(*) FROM (SELECT id FROM jobs WHERE owner_id {_MINE} LIMIT :most) AS few"  # noqa: S608
# Without GROUP BY, which would sort the rows first.
_COUNTED = ", ".join(
    [f"count(*) FILTER (WHERE state = '{state.value}')" for state in JobState]
    + [f"sum(tasks_{state.value})" for state in TaskState]
)
_TOTALS = f"SELECT {_COUNTED} FROM jobs WHERE {{}}owner_id {_MINE}"  # noqa: S608
_DOCUMENTS = "SELECT state, count(*) FROM documents WHERE tenant = :tenant GROUP BY state"
_PAUSED = "SELECT name FROM kinds WHERE paused_at IS NOT NULL ORDER BY name"
_STATES = ", ".join(f"'{state}'" for state in WORKER_LIVE)
_WORKERS = (
    f"SELECT {', '.join(WorkerRow._fields)} FROM workers "  # noqa: S608
    f"WHERE state IN ({_STATES}) ORDER BY started_at"
)
_HELD = (
    "SELECT worker_id, count(*) FROM tasks JOIN owners ON owners.id = tasks.owner_id "  # noqa: S608
    f"WHERE state = '{TaskState.RUNNING.value}' AND tenant = :tenant GROUP BY worker_id"
)


def totals(run: Run, tenant: str) -> dict[str, dict[str, int]]:
    """Count a tenant's `jobs` and `tasks` by state; every state is present."""
    [[few]] = run(_FEW, {"tenant": tenant, "most": FEW + 1})
    [counted] = run(_TOTALS.format("" if few <= FEW else "+"), {"tenant": tenant})
    row = [int(number or 0) for number in counted]
    return {
        "jobs": dict(zip((state.value for state in JobState), row, strict=False)),
        "tasks": dict(zip((state.value for state in TaskState), row[len(JobState) :], strict=True)),
    }


def documents(run: Run, tenant: str) -> dict[str, int]:
    """Count a tenant's documents by state."""
    found = dict(run(_DOCUMENTS, {"tenant": tenant}))
    return {state.value: found.get(state.value, 0) for state in DocumentState}


def paused_kinds(run: Run) -> list[str]:
    """List the paused job kinds."""
    return [name for [name] in run(_PAUSED, {})]


def live_workers(run: Run) -> list[WorkerRow]:
    """List workers that are not known to have ended."""
    return [WorkerRow(*row) for row in run(_WORKERS, {})]


def held_by_worker(run: Run, tenant: str) -> dict[str, int]:
    """Count the tasks of a tenant that each worker has claimed."""
    return dict(run(_HELD, {"tenant": tenant}))


_READY = f"FROM tasks WHERE state = '{TaskState.READY.value}'"
_SUSPECT = (
    f"SELECT (SELECT min(queue) {_READY}), (SELECT max(queue) {_READY}), "  # noqa: S608
    f"EXISTS (SELECT 1 FROM tasks WHERE state = '{TaskState.BLOCKED.value}' AND reason = "
    "'backoff' AND due_at BETWEEN :since AND :until) OR "
    f"EXISTS (SELECT 1 FROM tasks WHERE state = '{TaskState.RUNNING.value}' AND fence > 1)"
)


def may_have_problems(run: Run, *, now: Instant) -> bool:
    """Tell, at little cost, whether a broker, an outage or a queue without a worker is possible."""
    workers = live_workers(run)
    if any(worker.broker for worker in workers):
        return True
    given = {"since": now.wall - OUTAGE_RECENT, "until": now.wall + OUTAGE_AHEAD}
    [[first, last, is_retried]] = run(_SUSPECT, given)
    served = {queue for worker in workers for queue in worker.queues.split(",")}
    return bool(is_retried or (workers and first and (first != last or first not in served)))
