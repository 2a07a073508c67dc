"""The database: the only package that speaks SQL.

A function takes the open connection first and the time as `now`, and never commits. Other packages
compose these functions and name their types by what is exported here, so SQLAlchemy stays inside.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from quire.store.opening import open_database
    from quire.store.queue.fenced import Transaction

__all__ = ["Connection", "Transaction", "open_database"]

_HOMES = {
    "Connection": "sqlalchemy",
    "Transaction": "quire.store.queue.fenced",
    "open_database": "quire.store.opening",
}


def __getattr__(name: str) -> object:
    # Loaded on first use: some modules of this package are needed before SQLAlchemy is.
    if name not in _HOMES:
        raise AttributeError(f"module 'quire.store' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
