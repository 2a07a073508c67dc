"""Versioned forward migrations. Each is a module `migrations/mNNNN_*.py` with `up(conn)`."""

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

#: Seconds that a migration waits for workers that are too old for it.
WAIT_SECONDS = 90.0
_LOOK_SECONDS = 0.1


def versions() -> list[int]:
    """List the versions this Quire has, oldest first."""
    return sorted(_modules())


def version(conn: sa.Connection) -> int:
    """Return the schema's version; 0 for an empty database."""
    if not sa.inspect(conn).has_table("meta"):
        return 0
    found = conn.scalar(sa.select(meta.c.value).where(meta.c.key == "schema_version"))
    return int(found or 0)


def check(conn: sa.Connection) -> int:
    """Return how many migrations are missing; refuse what this Quire must not work on.

    That is a schema of a later Quire, a database that was moved away, and an unfinished copy.
    """
    missing = count_missing(conn)
    if version(conn):
        transfer_markers.refuse_unusable(conn)
    return missing


def count_missing(conn: sa.Connection) -> int:
    """Return how many migrations are missing; refuse a schema that this Quire is too old for."""
    found, last = version(conn), versions()[-1]
    if found and last < (least := compatibility.required_migration(conn, found)):
        raise SchemaAhead(
            f"database: its schema is version {found}, for which a Quire must know migration "
            f"{least}; this one knows up to {last}. Install the newer Quire on this machine too; "
            "nothing was changed."
        )
    return max(last - found, 0)


def migrate(
    db: "Database",
    *,
    into_copy: bool = False,
    patience: float = WAIT_SECONDS,
    alive: Alive = has_heartbeat,
) -> list[int]:
    """Apply what is missing, one transaction each; several processes may try at once.

    A step that workers are too old for waits `patience` seconds for them to leave. `into_copy` is
    for the one who fills an unfinished copy.
    """
    if db.path is not None:
        _make_file(db.path)
    applied: list[int] = []
    modules = _modules()
    ready = 0
    while True:
        with db.begin() as conn:
            dialect.lift_timeouts(conn, "0")
            dialect.lock_schema(conn)
            if not (count_missing(conn) if into_copy else check(conn)):
                return applied
            step = version(conn) + 1
            module = importlib.import_module(modules[step])
            is_free = ready == step and compatibility.is_announced(conn, step)
            is_applied = is_free or not _announce(db, conn, module, step, alive)
            if is_applied:
                _apply(conn, module, step)
        if is_applied:
            log.event("database.migrated", version=step)
            applied.append(step)
        else:
            _wait_for_leavers(db, step, patience, alive)
            ready = step


def _apply(conn: sa.Connection, module: ModuleType, step: int) -> None:
    before = compatibility.recorded_requirement(conn, step - 1) if step > 1 else 0
    module.up(conn)
    dialect.upsert(conn, meta, {"key": "schema_version", "value": str(step)}, ["key"], ["value"])
    compatibility.record(conn, step, max(before, compatibility.requirement_of(module, step)))


def _announce(
    db: "Database", conn: sa.Connection, module: ModuleType, step: int, alive: Alive
) -> bool:
    """Say who may stay beside a step; False where nobody has to leave for it."""
    least = compatibility.requirement_of(module, step)
    if step == 1 or least <= compatibility.recorded_requirement(conn, step - 1):
        return False
    now = db.now(conn).wall
    lease = db.lease_seconds
    if not compatibility.blocking_workers(conn, since=now, lease=lease, now=now, alive=alive):
        return False
    compatibility.record(conn, step, least)
    return True


def _wait_for_leavers(db: "Database", step: int, patience: float, alive: Alive) -> None:
    """Wait until every worker has left or may stay; else take the announcement back."""
    with db.read() as conn:
        since = db.now(conn).wall
    log.event("database.waits", version=step)
    end = time.monotonic() + patience
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
        compatibility.withdraw(conn, step)
    raise Conflict(
        f"database: migration {step} needs every worker to be of this Quire, and {', '.join(left)} "
        f"did not leave within {patience:g} s. Nothing was changed; drain them, then run "
        "`quire migrate` again."
    )


def _make_file(path: Path) -> None:
    """Make an empty database: connections open what is there, and make nothing."""
    if path.exists():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise DatabaseUnavailable(
            f"database {path}: cannot be made ({error.strerror}). Choose a folder that can be "
            "written to with QUIRE_HOME, or free some space; nothing was changed."
        ) from error


def _modules() -> dict[int, str]:
    found = pkgutil.iter_modules(migrations.__path__)
    return {int(m.name[1:5]): f"{migrations.__name__}.{m.name}" for m in found}
