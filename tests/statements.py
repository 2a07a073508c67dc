"""Compiled SQL that the databases of all tests of a process share.

SQLAlchemy keeps it for each engine, by its dialect, and each test has an engine of its own: the
queries of the doctor alone, who looks at the end of most tests, cost more to compile than to run.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.util import LRUCache

_compiled: LRUCache[object, object] = LRUCache(2_000)
_dialects: dict[str, sa.Dialect] = {}


def share(engine: sa.Engine) -> None:
    """Let an engine use what others of its kind have compiled, and they what it will."""
    known = _dialects.setdefault(engine.dialect.name, engine.dialect)
    if known.server_version_info is None:
        # It has not been connected, and does not know yet what its server can do.
        _dialects[engine.dialect.name] = engine.dialect
    else:
        engine.dialect = known
    engine.update_execution_options(compiled_cache=_compiled)
