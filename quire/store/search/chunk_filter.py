"""Restricts a search to some chunks: a subquery (PostgreSQL only) or an array of ids."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from quire.store.db import dialect

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class SqlType(sa.types.UserDefinedType[Any]):
    """A PostgreSQL type by name; values are passed as PostgreSQL text."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        """Return the name of the type."""
        return self.name


_ARRAY = SqlType("BIGINT[]")
# An array parameter, not a cast of text: the text would be parsed for each row.
_IDS: sa.ColumnElement[Any] = sa.bindparam("of_chunks", type_=_ARRAY)
_IS_IN_ARRAY: sa.ColumnElement[Any] = sa.any_(sa.cast(_IDS, _ARRAY))

#: Keeps joins in the written order: planning other orders takes milliseconds.
KEEP_JOIN_ORDER = {"join_collapse_limit": "1", "from_collapse_limit": "1"}


def numbers(text: str) -> "npt.NDArray[np.int64]":
    """Parse an array of ids: a literal of PostgreSQL, or JSON."""
    import numpy as np

    # Several times as fast as a JSON parser, which makes an object of each number.
    return np.fromstring(text[1:-1], np.int64, sep=",") if len(text) > 2 else np.empty(0, np.int64)


class ChunkFilter(NamedTuple):
    """Allows the chunks of an array in `given`, or those that `select` finds with `given`."""

    given: dict[str, Any]
    select: sa.Select[Any] | None = None

    @classmethod
    def from_array(cls, ids: str) -> "ChunkFilter":
        """Allow the chunks of an array: a literal of PostgreSQL, or JSON on SQLite."""
        return cls({"of_chunks": ids})

    @classmethod
    def of(cls, conn: sa.Connection, ids: Sequence[int]) -> "ChunkFilter":
        """Allow some chunks."""
        return cls.from_array(dialect.encode_ids(conn, ids))

    def ids(self) -> "npt.NDArray[np.int64]":
        """Return the ids of the array, in order."""
        import numpy as np

        return np.sort(numbers(self.given["of_chunks"]))

    def has(self, conn: sa.Connection, column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        """Test whether a column is the id of an allowed chunk."""
        if dialect.is_sqlite(conn):
            return dialect.id_in(conn, column, "of_chunks")
        return column == _IS_IN_ARRAY if self.select is None else column.in_(self.select)
