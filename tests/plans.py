"""The query plan that a database chooses for a statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa


def explain(conn: sa.Connection, statement: Any, parameters: Mapping[str, Any]) -> str:
    """The plan as text."""
    compiled = statement.compile(dialect=conn.dialect, compile_kwargs={"render_postcompile": True})
    verb = "EXPLAIN QUERY PLAN " if conn.dialect.name == "sqlite" else "EXPLAIN "
    bound = {**compiled.params, **parameters}
    given = tuple(bound[n] for n in compiled.positiontup) if compiled.positional else bound
    found = conn.exec_driver_sql(verb + str(compiled), given)
    return "\n".join(str(row[-1]) for row in found)
