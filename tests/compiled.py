"""Compiles each statement once per test process instead of once per database.

SQLAlchemy caches compiled statements per engine, and nearly every test opens a database of its own.
Compiling the invariants of `quire doctor` after each test of the store took half of the time
of that suite. Engines of the same dialect, driver and server version share one cache here.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

STATEMENTS = 5_000


def share() -> None:
    """Let all engines of this process find each other's compiled statements."""
    cache: LRUCache[Any, Any] = LRUCache(STATEMENTS)
    made = Engine.__init__

    def make(self: Engine, *given: Any, **named: Any) -> None:
        made(self, *given, **named)
        self._compiled_cache = cache

    # The dialect is a part of the cache's key. Two that compile alike are equal here.
    DefaultDialect.__hash__ = lambda self: hash(type(self))  # type: ignore[method-assign]
    DefaultDialect.__eq__ = _compiles_alike  # type: ignore[assignment, method-assign]
    Engine.__init__ = make  # type: ignore[method-assign]


def _compiles_alike(one: DefaultDialect, other: object) -> bool:
    return (
        isinstance(other, DefaultDialect)
        and type(one) is type(other)
        and one.dbapi is other.dbapi
        and one.server_version_info == other.server_version_info
    )
