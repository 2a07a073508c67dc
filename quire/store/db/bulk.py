"""Bulk writes: one statement over one JSON parameter, COPY, or executemany on SQLite.

A statement over JSON has one text for any number of rows and can return rows. If nothing is
returned, SQLite's executemany is faster (docs/adr/0003).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from quire.store.db.dialect import Vector, encode_rows, is_sqlite
from quire.store.db.pg_binary import vector_list

#: Maximum rows and bytes of one INSERT.
_INSERT_ROWS, _INSERT_BYTES = 5_000, 32 << 20
#: From this number of rows on, COPY is faster on PostgreSQL.
_COPY_ROWS = 1_000
_COPY_LINES = 64
_COPY_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def bulk_insert(
    conn: sa.Connection, table: sa.Table, columns: Sequence[str], values: Sequence[Sequence[Any]]
) -> None:
    """Insert rows by one statement over one JSON parameter, or by COPY if they are many.

    `executemany` costs over 10 µs per row for bindings alone; COPY needs more round trips.
    Columns with equal values in all rows are sent once.
    """
    if not is_sqlite(conn) and len(values) >= _COPY_ROWS:
        _copy(conn, table, columns, values)
        return
    for start in range(0, len(values), _INSERT_ROWS):
        _insert(conn, table, columns, values[start : start + _INSERT_ROWS])


def _copy(
    conn: sa.Connection, table: sa.Table, columns: Sequence[str], values: Sequence[Sequence[Any]]
) -> None:
    """Insert rows by COPY, formatted by columns: equal values only once."""
    texts: list[Iterable[str]] = []
    for column in zip(*values, strict=True):
        is_equal = column.count(column[0]) == len(values)
        texts.append(repeat(_copied(column[0]), len(values)) if is_equal else map(_copied, column))
    lines = map("\t".join, zip(*texts, strict=True))
    with _copying(conn, table, columns) as copy:
        while part := list(islice(lines, _COPY_LINES)):
            copy.write("\n".join([*part, ""]))


def _copied(value: Any) -> str:
    """Format a value as COPY's text format has it."""
    if value is None:
        return "\\N"
    text = str(value)
    # Escapes are rare: most texts hold none of the characters.
    if text.isprintable() and "\\" not in text:
        return text
    return text.translate(_COPY_ESCAPES)


@contextmanager
def _copying(conn: sa.Connection, table: sa.Table, columns: Sequence[str]) -> Iterator[Any]:
    # The session plans each execution anew, also of the check of each foreign key of each row.
    conn.exec_driver_sql("SET LOCAL plan_cache_mode = auto")
    driver: Any = conn.connection.driver_connection
    text = f"COPY {table.name} ({', '.join(columns)}) FROM STDIN"
    with driver.cursor() as cursor, cursor.copy(text) as copy:
        yield copy


def copy_rows(
    conn: sa.Connection, table: sa.Table, columns: Sequence[str], values: Sequence[Sequence[Any]]
) -> None:
    """Insert rows by COPY (PostgreSQL only); takes bytes too."""
    with _copying(conn, table, columns) as copy:
        for row in values:
            copy.write_row(row)


def _insert(
    conn: sa.Connection, table: sa.Table, columns: Sequence[str], values: Sequence[Sequence[Any]]
) -> None:
    picks: list[str] = []
    fixed: list[Any] = []
    varying: list[tuple[Any, ...]] = []
    for name, column in zip(columns, zip(*values, strict=True), strict=True):
        if column.count(column[0]) == len(values):
            picks.append(_cast(conn, table, name, "?"))
            fixed.append(column[0])
        else:
            picks.append(_cast(conn, table, name, f"value ->> {len(varying)}"))
            varying.append(column)
    lines = encode_rows(list(zip(*varying, strict=True)) if varying else [()] * len(values))
    if len(lines) > _INSERT_BYTES and len(values) > 1:
        half = len(values) // 2
        _insert(conn, table, columns, values[:half])
        _insert(conn, table, columns, values[half:])
        return
    _insert_picked(conn, table, dict(zip(columns, picks, strict=True)), (*fixed, lines))


def _insert_picked(
    conn: sa.Connection,
    table: sa.Table,
    picked: Mapping[str, str],
    parameters: tuple[Any, ...],
    tail: str = "",
) -> sa.CursorResult[Any]:
    """Insert SQL expressions over `value`, a row of the last parameter, which is JSON."""
    source = "json_each(?)" if is_sqlite(conn) else "jsonb_array_elements(CAST(? AS jsonb)) value"
    text = (
        f"INSERT INTO {table.name} ({', '.join(picked)}) "  # noqa: S608
        f"SELECT {', '.join(picked.values())} FROM {source} {tail}"
    )
    return conn.exec_driver_sql(text if is_sqlite(conn) else text.replace("?", "%s"), parameters)


def _pick(conn: sa.Connection, table: sa.Table, columns: Sequence[str]) -> dict[str, str]:
    return {name: _cast(conn, table, name, f"value ->> {at}") for at, name in enumerate(columns)}


def _cast(conn: sa.Connection, table: sa.Table, name: str, value: str) -> str:
    # SQLite keeps the JSON type; a cast would only cost time.
    if is_sqlite(conn):
        return value
    return f"CAST({value} AS {table.c[name].type.compile(dialect=conn.dialect)})"


def insert_missing(
    conn: sa.Connection,
    table: sa.Table,
    columns: Sequence[str],
    values: Sequence[Sequence[Any]],
    returning: Sequence[str] = (),
    made: Mapping[str, str] = MappingProxyType({}),
) -> list[Any]:
    """Insert the rows that violate no unique key; returns the requested columns of these.

    `made` maps further columns to SQL expressions over the row's JSON `value`.
    """
    if not values:
        return []
    if not returning and not made:
        _write(conn, table, columns, values, "ON CONFLICT DO NOTHING")
        return []
    picked = {**_pick(conn, table, columns), **made}
    tail = f" RETURNING {', '.join(returning)}" if returning else ""
    found = _insert_picked(
        conn, table, picked, (encode_rows(values),), f"WHERE true ON CONFLICT DO NOTHING{tail}"
    )
    return list(found) if returning else []


def insert_missing_returning_ids(
    conn: sa.Connection,
    table: sa.Table,
    columns: Sequence[str],
    values: Sequence[Sequence[Any]],
    key: str,
    made: Mapping[str, str] = MappingProxyType({}),
) -> list[Any]:
    """Insert as `insert_missing` does; returns (id, key) of the new rows.

    The table's ids must only grow: on SQLite, which has one writer, new rows are recognised by
    them. RETURNING from an insert of JSON takes twice as long.
    """
    if not is_sqlite(conn):
        return insert_missing(conn, table, columns, values, ("id", key), made)
    last = conn.exec_driver_sql(f"SELECT coalesce(max(id), 0) FROM {table.name}").scalar_one()  # noqa: S608
    _write(conn, table, columns, values, "ON CONFLICT DO NOTHING")
    fresh = f"SELECT id, {key} FROM {table.name} WHERE id > ?"  # noqa: S608
    return list(conn.exec_driver_sql(fresh, (last,)))


def _write(
    conn: sa.Connection,
    table: sa.Table,
    columns: Sequence[str],
    values: Sequence[Sequence[Any]],
    clash: str,
) -> None:
    """Insert rows without returning any; `clash` is the ON CONFLICT clause."""
    if is_sqlite(conn):
        # From JSON, a row with foreign keys takes five times as long.
        placeholders = ", ".join("?" * len(columns))
        into = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({placeholders})"  # noqa: S608
        conn.exec_driver_sql(f"{into} {clash}", list(map(tuple, values)))
        return
    picked = _pick(conn, table, columns)
    _insert_picked(conn, table, picked, (encode_rows(values),), f"WHERE true {clash}")


def upsert_many(
    conn: sa.Connection,
    table: sa.Table,
    columns: Sequence[str],
    values: Sequence[Sequence[Any]],
    *,
    keys: Sequence[str],
) -> None:
    """Insert rows, or update the other columns of rows with the same keys."""
    if not values:
        return
    changed = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in keys)
    _write(conn, table, columns, values, f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changed}")


def insert_missing_blobs(
    conn: sa.Connection, table: sa.Table, columns: Sequence[str], values: Sequence[Sequence[Any]]
) -> None:
    """Insert the missing rows of a table with binary columns, which JSON cannot carry."""
    if not values:
        return
    if is_sqlite(conn):
        _write(conn, table, columns, values, "ON CONFLICT DO NOTHING")
        return
    types = [table.c[name].type for name in columns]
    arrays = [
        vector_list(conn, array) if isinstance(kind, Vector) else list(array)
        for kind, array in zip(types, zip(*values, strict=True), strict=True)
    ]
    # `%b` sends parameters in binary format.
    casts = ", ".join(f"CAST(%b AS {kind.compile(dialect=conn.dialect)}[])" for kind in types)
    into = f"INSERT INTO {table.name} ({', '.join(columns)})"
    conn.exec_driver_sql(
        f"{into} SELECT * FROM unnest({casts}) ON CONFLICT DO NOTHING",  # noqa: S608
        tuple(arrays),
    )
