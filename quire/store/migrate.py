"""Versioned forward migrations. Each is a module `migrations/mNNNN_*.py` with `up(conn)`."""

import importlib
import pkgutil
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from quire import log
from quire.errors import DatabaseUnavailable, SchemaAhead
from quire.store import dialect, migrations, move_marks
from quire.store.tables import meta

if TYPE_CHECKING:
    from quire.store.engine import Database


def known() -> list[int]:
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
    missing = lacking(conn)
    if version(conn):
        move_marks.refuse(conn)
    return missing


def lacking(conn: sa.Connection) -> int:
    """Return how many migrations are missing; refuse a schema of a later Quire."""
    found, last = version(conn), known()[-1]
    if found > last:
        raise SchemaAhead(
            f"database: its schema is version {found}, this Quire knows up to {last}. "
            "Install the newer Quire on this machine too; nothing was changed."
        )
    return last - found


def migrate(db: "Database", *, into_copy: bool = False) -> list[int]:
    """Apply what is missing, one transaction each; several processes may try at once.

    `into_copy` is for the one who fills an unfinished copy.
    """
    if db.path is not None:
        _make_file(db.path)
    applied: list[int] = []
    modules = _modules()
    while True:
        with db.begin() as conn:
            dialect.unhurried(conn, "0")
            dialect.lock_schema(conn)
            if not (lacking(conn) if into_copy else check(conn)):
                return applied
            step = version(conn) + 1
            importlib.import_module(modules[step]).up(conn)
            dialect.upsert(
                conn, meta, {"key": "schema_version", "value": str(step)}, ["key"], ["value"]
            )
        log.event("database.migrated", version=step)
        applied.append(step)


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
