"""What an invariant is, and those that follow from the schema: constraints and foreign keys.

The others are in `queue_invariants` and `document_invariants`, each a decorated query: it returns
one row per violation, and the first column identifies it. `:wall` and `:lease` are the two clocks,
`:slack` the seconds that a sweep may take. One statement sees one snapshot, so a busy database does
not look inconsistent.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from quire.store.db import dialect

Violations = sa.Select[Any] | Iterator[Any]  # an iterator where SQL would be slow
Query = Callable[[sa.Connection], Violations]
AnyQuery = TypeVar("AnyQuery", bound=Query)


class Invariant(NamedTuple):
    """A name, what must hold, and the query for violations."""

    name: str
    sentence: str
    query: sa.Select[Any] | Query


class Invariants(list[Invariant]):
    """A table of invariants."""

    def rule(self, name: str, sentence: str) -> Callable[[AnyQuery], AnyQuery]:
        """Add the decorated query."""

        def add(query: AnyQuery) -> AnyQuery:
            self.append(Invariant(name, sentence, query))
            return query

        return add


def violators(
    conn: sa.Connection, invariant: Invariant, clocks: dict[str, float], *, limit: int
) -> tuple[int, list[Any]]:
    """Return the number of violations and the first few of them."""
    query = invariant.query(conn) if callable(invariant.query) else invariant.query
    if isinstance(query, Iterator):
        found = list(query)
        return len(found), found[:limit]
    some = [name for name, *_ in conn.execute(query.limit(limit + 1), clocks)]
    if len(some) <= limit:
        return len(some), some
    count = sa.select(sa.func.count()).select_from(query.subquery())
    return conn.execute(count, clocks).scalar_one(), some[:limit]


def row_name(table: sa.FromClause) -> sa.ColumnElement[Any]:
    """Return the name of a row: its primary key, joined by dots."""
    first, *others = table.primary_key
    if not others:
        return first
    name: sa.ColumnElement[Any] = sa.cast(first, sa.Text)
    for each in others:
        name = name + "." + sa.cast(each, sa.Text)
    return name


def derived(tables: Sequence[sa.Table]) -> list[Invariant]:
    """Derive the invariants that tables declare: constraints and references."""
    return [
        *(
            _constraints(table, checks)
            for table in tables
            if (checks := [c for c in table.constraints if isinstance(c, sa.CheckConstraint)])
        ),
        *(
            reference(key.parent, key.column)
            for table in tables
            for key in sorted(table.foreign_keys, key=lambda key: key.parent.name)
        ),
    ]


def _constraints(table: sa.Table, checks: Sequence[sa.CheckConstraint]) -> Invariant:
    broken = sa.case(
        *(
            (sa.text(f"NOT ({c.sqltext})"), sa.literal_column(f"'{c.name}'", sa.Text))
            for c in sorted(checks, key=lambda c: str(c.name))
        )
    )
    which = sa.cast(row_name(table), sa.Text) + " " + broken
    return Invariant(
        f"{table.name}.constraints",
        f"Every row of {table.name} satisfies its CHECK constraints.",
        sa.select(which).where(broken.is_not(None)),
    )


def reference(
    column: sa.Column[Any], target: sa.Column[Any], *only: sa.ColumnElement[bool]
) -> Invariant:
    """Derive: a column that is not null refers to an existing row."""
    other = target.table.alias("target")
    query = (
        sa.select(row_name(column.table))
        .select_from(column.table)
        .join(other, other.c[target.name] == column, isouter=True)
        .where(column.is_not(None), other.c[target.name].is_(None), *only)
    )
    noun = column.table.name
    return Invariant(
        f"{noun}.{column.name}",
        f"Every row of {noun} refers to an existing row of {target.table.name}.",
        query,
    )


def next_id(table: sa.Table) -> Invariant:
    """Derive: the ids of a table were reserved."""
    return Invariant(
        f"{table.name}.next_id",
        f"No id of {table.name} is above the last reserved id.",
        lambda conn: sa.select(table.c.id).where(
            table.c.id > sa.func.coalesce(dialect.last_reserved_id(conn, table), 0)
        ),
    )
