"""Applies schema migrations: modules `migrations/mNNNN_*.py` with `up(conn)`, forward only."""

import importlib
import pkgutil
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import sqlalchemy as sa

from quire import log
from quire.errors import Conflict, DatabaseUnavailable, SchemaAhead
from quire.store.db import compatibility, dialect, migrations, transfer_markers
from quire.store.db.compatibility import Alive, has_heartbeat
from quire.store.db.schema.queue import meta

if TYPE_CHECKING:
    from quire.store.db.engine import Database

#: How long a migration waits for outdated workers to stop.
WAIT_SECONDS = 90.0
_LOOK_SECONDS = 0.1


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
    required = {found: found, **compatibility.recorded(conn)} if found else {0: 0}
    if last < (least := max(n for at, n in required.items() if at >= found)):
        raise SchemaAhead(
            f"database: schema version {found} needs a Quire release with migration {least}; this "
            f"one has migrations up to {last}. Upgrade Quire on this machine. Nothing was changed."
        )
    return max(last - found, 0)


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
            step = version(conn) + 1
            module = importlib.import_module(modules[step])
            is_free = ready == step and step in compatibility.recorded(conn)
            is_applied = is_free or not _announce(db, conn, module, step, alive)
            if is_applied:
                _apply(conn, module, step)
        if is_applied:
            log.event("database.migrated", version=step)
            applied.append(step)
        else:
            _wait_for_workers(db, step, timeout, alive)
            ready = step


def _apply(conn: sa.Connection, module: ModuleType, step: int) -> None:
    before = compatibility.recorded(conn).get(step - 1, step - 1) if step > 1 else 0
    module.up(conn)
    dialect.upsert(conn, meta, {"key": "schema_version", "value": str(step)}, ["key"], ["value"])
    compatibility.record(conn, step, max(before, compatibility.requirement_of(module, step)))


def _announce(
    db: "Database", conn: sa.Connection, module: ModuleType, step: int, alive: Alive
) -> bool:
    """Announce which releases may keep running; False if no worker has to stop."""
    least = compatibility.requirement_of(module, step)
    if step == 1 or least <= compatibility.recorded(conn).get(step - 1, step - 1):
        return False
    now = db.now(conn).wall
    lease = db.lease_seconds
    if not compatibility.blocking_workers(conn, since=now, lease=lease, now=now, alive=alive):
        return False
    compatibility.record(conn, step, least)
    return True


def _wait_for_workers(db: "Database", step: int, timeout: float, alive: Alive) -> None:
    """Wait until every worker has stopped or may stay; else withdraw the announcement."""
    with db.read() as conn:
        since = db.now(conn).wall
    log.event("database.waiting_for_workers", version=step)
    end = time.monotonic() + timeout
    while True:
        with db.read() as conn:
            now = db.now(conn).wall
            left = compatibility.blocking_workers(
                conn, since=since, lease=db.lease_seconds, now=now, alive=alive
            )
        if not left:
            return
        if time.monotonic() >= end:
            break
        time.sleep(_LOOK_SECONDS)
    with db.begin() as conn:
        conn.execute(sa.delete(meta).where(meta.c.key == f"{compatibility.PREFIX}{step}"))
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
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise DatabaseUnavailable(
            f"database {path}: cannot be created ({error.strerror}). Set QUIRE_HOME to a writable "
            "folder, or free some space. Nothing was changed."
        ) from error


def _modules() -> dict[int, str]:
    found = pkgutil.iter_modules(migrations.__path__)
    return {int(m.name[1:5]): f"{migrations.__name__}.{m.name}" for m in found}
