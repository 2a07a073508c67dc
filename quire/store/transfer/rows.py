"""Rows in a form that is equal on both databases, and checksums over them.

The checksum is a sum of hashes and so independent of row order: the databases sort text
differently.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import sort_tables

from quire.store.db.dialect import Vector
from quire.store.db.schema import access as access_tables
from quire.store.db.schema import documents as document_tables
from quire.store.db.schema.queue import ENGINE, events, meta, tasks
from quire.store.db.transfer_markers import PREFIX, Checkpoint

#: All tables in foreign-key order, `meta` last.
TABLES = (
    *(
        table
        for table in sort_tables([*ENGINE, *document_tables.TABLES, *access_tables.TABLES])
        if table is not meta
    ),
    meta,
)

#: Rows of `meta` that belong to one database: schema version, id counters, transfer state.
_OWN = sa.or_(
    meta.c.key.startswith("schema_", autoescape=True),
    meta.c.key.startswith("last_id.", autoescape=True),
    meta.c.key.startswith(PREFIX, autoescape=True),
)
#: Rows fetched at a time.
_FETCH = 200
_MODULUS = 1 << 128

Row = tuple[Any, ...]


class TableReader:
    """Reads and compares the rows of one table."""

    def __init__(self, table: sa.Table, lease: float) -> None:
        self.table = table
        # PostgreSQL sets the transaction id of events; SQLite has none.
        self.columns = [column for column in table.c if column is not events.c.xid]
        self.names = [column.name for column in self.columns]
        self.keys = list(table.primary_key)
        self._key_indexes = [self.names.index(key.name) for key in self.keys]
        self._forms = [_form(column, lease) for column in self.columns]

    def count(self, conn: sa.Connection) -> int:
        """Count the rows."""
        return (
            conn.scalar(self._transferable(sa.select(sa.func.count()).select_from(self.table))) or 0
        )

    def raw(
        self, conn: sa.Connection, *, after: Sequence[Any] | None = None
    ) -> Iterator[Sequence[Any]]:
        """Read rows in key order, after a key if given."""
        query = self._transferable(sa.select(*self.columns)).order_by(*self.keys)
        if after is not None:
            query = query.where(sa.tuple_(*self.keys) > self._key_literal(after))
        return _stream(conn, query)

    def up_to(self, conn: sa.Connection, last: Sequence[Any]) -> Checkpoint:
        """Return count and checksum of the rows up to a key."""
        query = self._transferable(sa.select(*self.columns))
        return self._sum(conn, query.where(sa.tuple_(*self.keys) <= self._key_literal(last)))

    def total(self, conn: sa.Connection) -> Checkpoint:
        """Return count and checksum of all rows."""
        return self._sum(conn, self._transferable(sa.select(*self.columns)))

    def key(self, row: Sequence[Any]) -> list[Any]:
        """Return the key of a row."""
        return [row[at] for at in self._key_indexes]

    def canonical(self, row: Sequence[Any]) -> Row:
        """Return a row in the form that is equal on both databases."""
        return tuple(
            None if value is None else form(value)
            for form, value in zip(self._forms, row, strict=True)
        )

    def _transferable(self, query: sa.Select[Any]) -> sa.Select[Any]:
        return query.where(sa.not_(_OWN)) if self.table is meta else query

    def _key_literal(self, key: Sequence[Any]) -> Any:
        pairs = zip(self.keys, key, strict=True)
        return sa.tuple_(*(sa.literal(value, column.type) for column, value in pairs))

    def _sum(self, conn: sa.Connection, query: sa.Select[Any]) -> Checkpoint:
        rows = checksum = 0
        for row in _stream(conn, query):
            rows, checksum = rows + 1, add_hash(checksum, self.canonical(row))
        return Checkpoint(None, rows, checksum)


def add_hash(checksum: int, row: Row) -> int:
    """Add the hash of a canonical row to a checksum."""
    digest = blake2b(repr(row).encode(errors="surrogatepass"), digest_size=16).digest()
    return (checksum + int.from_bytes(digest)) % _MODULUS


def _stream(conn: sa.Connection, query: sa.Select[Any]) -> Iterator[Sequence[Any]]:
    yield from conn.execute(query.execution_options(yield_per=_FETCH))


def _form(column: sa.Column[Any], lease: float) -> Callable[[Any], Any]:
    if column is tasks.c.expires_at:
        # Lease times are on the boot clock on SQLite but wall clock on PostgreSQL: all expire.
        return lambda value: lease
    if isinstance(column.type, Vector):
        return _floats
    for kind, form in _FORMS.items():
        if isinstance(column.type, kind):
            return form
    raise AssertionError(column)


def _text(value: Any) -> str:
    # SQLite accepts NUL in text, PostgreSQL does not.
    return str(value).replace("\0", "\ufffd")


def _floats(value: bytes | str) -> bytes:
    """Return the bytes of a vector; PostgreSQL returns it as text."""
    if isinstance(value, str):
        return array("f", map(float, value.strip("[]").split(","))).tobytes()
    return bytes(value)


#: Conversion by column type; SQLite may return an int for a float.
_FORMS: dict[type[sa.types.TypeEngine[Any]], Callable[[Any], Any]] = {
    sa.Boolean: bool,
    sa.Double: float,
    sa.Integer: int,
    sa.LargeBinary: bytes,
    sa.Text: _text,
}
