"""Applies schema migrations: modules `migrations/mNNNN_*.py` with `up(conn)`, forward only.

A release is identified by its last migration. A migration's `OLDEST` is the last migration that a
release must have to keep running after it (default: the migration itself, so older releases must
stop). This requirement is announced in `meta` before the migration. Workers read it at each
heartbeat and stop if they are too old; the migration waits for them. A worker that sent a
heartbeat after the announcement and still runs may stay.
"""

import importlib
import pkgutil
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import sqlalchemy as sa

from quire import log
from quire.errors import Conflict, DatabaseUnavailable, SchemaAhead
from quire.home import FILE_MODE, make_folder
from quire.model.records import WORKER_LIVE, WorkerRow
from quire.store.db import dialect, migrations, transfer_markers
from quire.store.db.schema.queue import meta, workers

if TYPE_CHECKING:
    from quire.store.db.engine import Database

#: How long a migration waits for outdated workers to stop.
WAIT_SECONDS = 90.0
_LOOK_SECONDS = 0.1
#: Key prefix in `meta`, followed by a version; the value is the migration that it requires.
_REQUIRED = "schema_oldest."


class Alive(Protocol):
    """Tells whether a worker is alive; on its own machine more is known than its heartbeat."""

    def __call__(self, row: WorkerRow, /, *, now: float, lease: float) -> bool:
        """Check one worker."""
        ...


def has_heartbeat(row: WorkerRow, /, *, now: float, lease: float) -> bool:
    """Tell whether a worker sent a heartbeat within a lease."""
    return now - row.heartbeat_at <= lease


def versions() -> list[int]:
    """List the schema versions of this Quire release, oldest first."""
    return sorted(_modules())


def version(conn: sa.Connection) -> int:
    """Return the schema version; 0 for an empty database."""
    if not sa.inspect(conn).has_table("meta"):
        return 0
    found = conn.scalar(sa.select(meta.c.value).where(meta.c.key == "schema_version"))
    return int(found or 0)


def check(conn: sa.Connection) -> int:
    """Return how many migrations are missing; raise if this release must not use the database.

    That is: a schema that is too new, a database that was transferred, an unfinished transfer.
    """
    missing = count_missing(conn)
    if missing < len(versions()):  # not an empty database
        transfer_markers.refuse_unusable(conn)
    return missing


def count_missing(conn: sa.Connection) -> int:
    """Return how many migrations are missing; raise if the schema is too new."""
    found, last = version(conn), versions()[-1]
    required = {found: found, **_requirements(conn)} if found else {0: 0}
    if last < (least := max(n for at, n in required.items() if at >= found)):
        raise SchemaAhead(
            f"database: schema version {found} needs a Quire release with migration {least}; this "
            f"one has migrations up to {last}. Upgrade Quire on this machine. Nothing was changed."
        )
    return sum(each > found for each in versions())


def migrate(
    db: "Database",
    *,
    into_transfer: bool = False,
    timeout: float = WAIT_SECONDS,
    alive: Alive = has_heartbeat,
) -> list[int]:
    """Apply the missing migrations, one transaction each; safe to run concurrently.

    A migration that outdated workers cannot survive waits up to `timeout` seconds for them to
    stop. `into_transfer` allows the target of an unfinished transfer.
    """
    if db.path is not None:
        _make_file(db.path)
    applied: list[int] = []
    modules = _modules()
    ready = 0
    while True:
        with db.begin(is_long=True) as conn:
            dialect.lift_timeouts(conn, "0")
            dialect.lock_schema(conn)
            if not (count_missing(conn) if into_transfer else check(conn)):
                return applied
            step = _next(version(conn))
            module = importlib.import_module(modules[step])
            is_free = ready == step and step in _requirements(conn)
            is_applied = is_free or not _announce(db, conn, module, step, alive)
            if is_applied:
                _apply(conn, module, step)
        if is_applied:
            log.event("database.migrated", version=step)
            applied.append(step)
        else:
            _wait_for_workers(db, step, timeout, alive)
            ready = step


def _next(found: int) -> int:
    """Return the migration after a version; numbers that nobody used are left out."""
    return min(each for each in versions() if each > found)


def _required_at(conn: sa.Connection, found: int) -> int:
    """Return the migration that a schema of this version requires."""
    return _requirements(conn).get(found, found) if found else 0


def _apply(conn: sa.Connection, module: ModuleType, step: int) -> None:
    before = _required_at(conn, version(conn))
    module.up(conn)
    _set(conn, "schema_version", step)
    _set(conn, f"{_REQUIRED}{step}", max(before, getattr(module, "OLDEST", step)))


def _set(conn: sa.Connection, key: str, value: int) -> None:
    dialect.upsert(conn, meta, {"key": key, "value": str(value)}, ["key"], ["value"])


def _requirements(conn: sa.Connection) -> dict[int, int]:
    """Return the migration required for each version that was applied or announced."""
    mine = meta.c.key.startswith(_REQUIRED, autoescape=True)
    rows = conn.execute(sa.select(meta.c.key, meta.c.value).where(mine))
    return {int(key.removeprefix(_REQUIRED)): int(value) for key, value in rows}


def _announce(
    db: "Database", conn: sa.Connection, module: ModuleType, step: int, alive: Alive
) -> bool:
    """Announce which releases may keep running; False if no worker has to stop."""
    least = getattr(module, "OLDEST", step)
    if step == 1 or least <= _required_at(conn, version(conn)):
        return False
    if not _blocking_workers(db, conn, db.now(conn).wall, alive):
        return False
    _set(conn, f"{_REQUIRED}{step}", least)
    return True


def _blocking_workers(db: "Database", conn: sa.Connection, since: float, alive: Alive) -> list[str]:
    """List live workers without a heartbeat since the announcement."""
    now = db.now(conn).wall
    columns = [workers.c[name] for name in WorkerRow._fields]
    live = conn.execute(sa.select(*columns).where(workers.c.state.in_(WORKER_LIVE)))
    return [
        row.id
        for row in map(WorkerRow._make, live)
        if not (row.state == "running" and row.heartbeat_at > since)
        and alive(row, now=now, lease=db.lease_seconds)
    ]


def _wait_for_workers(db: "Database", step: int, timeout: float, alive: Alive) -> None:
    """Wait until every worker has stopped or may stay; else withdraw the announcement."""
    with db.read() as conn:
        since = db.now(conn).wall
    log.event("database.waiting_for_workers", version=step)
    end = time.monotonic() + timeout
    while True:
        with db.read() as conn:
            left = _blocking_workers(db, conn, since, alive)
        if not left:
            return
        if time.monotonic() >= end:
            break
        time.sleep(_LOOK_SECONDS)
    with db.begin() as conn:
        conn.execute(sa.delete(meta).where(meta.c.key == f"{_REQUIRED}{step}"))
    raise Conflict(
        f"database: migration {step} needs all workers on this release, but {', '.join(left)} did "
        f"not stop within {timeout:g} s. Nothing was changed; drain them, then run `quire migrate` "
        "again."
    )


def _make_file(path: Path) -> None:
    """Create an empty database file: connections never create it."""
    if path.exists():
        return
    try:
        make_folder(path.parent)
        path.touch(mode=FILE_MODE)  # the files of its log get the same
    except OSError as error:
        raise DatabaseUnavailable(
            f"database {path}: cannot be created ({error.strerror}). Set QUIRE_HOME to a writable "
            "folder, or free some space. Nothing was changed."
        ) from error


def _modules() -> dict[int, str]:
    found = pkgutil.iter_modules(migrations.__path__)
    return {int(m.name[1:5]): f"{migrations.__name__}.{m.name}" for m in found}
