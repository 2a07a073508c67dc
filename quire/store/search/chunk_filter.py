"""Which chunks count, as a part of other statements."""

from typing import Any, NamedTuple

import sqlalchemy as sa


class SqlType(sa.types.UserDefinedType[Any]):
    """A type by its name in SQL; its values go as they are, in PostgreSQL's own words."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        """Name it."""
        return self.name


_ARRAY = SqlType("BIGINT[]")
# Not a text that is cast: it would be parsed anew for each row.
_IDS: sa.ColumnElement[Any] = sa.bindparam("of_chunks", type_=_ARRAY)
_LISTED: sa.ColumnElement[Any] = sa.any_(sa.cast(_IDS, _ARRAY))

#: Joins are made in the order in which they are written: to think of others takes milliseconds.
KEEP_JOIN_ORDER = {"join_collapse_limit": "1", "from_collapse_limit": "1"}


class ChunkFilter(NamedTuple):
    """Selects ids of chunks; `given` are its parameters."""

    select: sa.Select[Any]
    given: dict[str, Any]
    is_listed: bool = False

    @classmethod
    def listed(cls, ids: str) -> "ChunkFilter":
        """Name the chunks one by one, by an array in PostgreSQL's own words."""
        return cls(sa.select(sa.null()), {"of_chunks": ids}, is_listed=True)

    def has(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        """Tell whether a column is the id of a chunk that counts."""
        return column == _LISTED if self.is_listed else column.in_(self.select)
