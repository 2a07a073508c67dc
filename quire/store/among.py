"""Which chunks count, as a part of other statements."""

from typing import Any, NamedTuple

import sqlalchemy as sa


class _Ids(sa.types.UserDefinedType[str]):
    """An array of ids in PostgreSQL's own words; not a text there, which each row would parse."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "BIGINT[]"


_IDS: sa.ColumnElement[str] = sa.bindparam("of_chunks", type_=_Ids())
_LISTED: sa.ColumnElement[Any] = sa.any_(sa.cast(_IDS, _Ids()))

#: Joins are made in the order in which they are written: to think of others takes milliseconds.
#: And with the values at hand, because a list that is known is hashed once.
AS_WRITTEN = {
    "join_collapse_limit": "1",
    "from_collapse_limit": "1",
    "plan_cache_mode": "force_custom_plan",
}


class Among(NamedTuple):
    """Selects ids of chunks; `given` are its parameters."""

    select: sa.Select[Any]
    given: dict[str, Any]
    is_listed: bool = False

    @classmethod
    def listed(cls, ids: str) -> "Among":
        """Name the chunks one by one, by an array in PostgreSQL's own words."""
        return cls(sa.select(sa.null()), {"of_chunks": ids}, is_listed=True)

    def has(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        """Tell whether a column is the id of a chunk that counts."""
        return column == _LISTED if self.is_listed else column.in_(self.select)
