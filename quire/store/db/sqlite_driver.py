"""The SQLite driver, and reads with it alone: importing SQLAlchemy takes longer than most commands.

`read` is for a command that shows a few counts. Whatever needs more than a plain look at a healthy
database of this release (a migration, a transfer, an error to explain) is left to `Database`.
"""

import contextlib
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, TypeVar, cast

from quire.store.db import migrations

#: Runs a statement with `:name` parameters and returns its rows.
Run: TypeAlias = Callable[[str, Mapping[str, Any]], list[Any]]

R = TypeVar("R")

_BUSY_SECONDS = 1.0


def sqlite_module() -> ModuleType:
    """Return the newest SQLite module: pysqlite3 if installed, else the standard library's."""
    try:
        from pysqlite3 import dbapi2
    except ImportError:
        import sqlite3 as dbapi2
    return cast(ModuleType, dbapi2)


def read(path: Path, report: Callable[[Run], R]) -> R | None:
    """Run `report` on one snapshot; None if the file is missing, busy or not of this release."""
    # Not read-only: the first reader of a WAL database after a crash has to recover it.
    uri = f"{path.absolute().as_uri()}?mode=rw"
    errors, connect = sqlite_module().Error, sqlite_module().connect
    try:
        with contextlib.closing(connect(uri, uri=True, timeout=_BUSY_SECONDS)) as connection:

            def run(statement: str, given: Mapping[str, Any]) -> list[Any]:
                return cast(list[Any], connection.execute(statement, dict(given)).fetchall())

            connection.execute("BEGIN")
            return report(run) if _is_ours(dict(run("SELECT key, value FROM meta", {}))) else None
    except errors:
        return None


def _is_ours(meta: Mapping[str, str]) -> bool:
    """Tell whether a database has the schema of this release, no later one announced, no move."""
    newest = max(int(each.name[1:5]) for each in pkgutil.iter_modules(migrations.__path__))
    known = {f"schema_oldest.{number}" for number in range(newest + 1)}
    special = {key for key in meta if key.startswith(("schema_oldest.", "move."))}
    return meta.get("schema_version") == str(newest) and special <= known
