"""The few things SQLite and PostgreSQL say differently, each one function.

No other module asks which database it talks to.
"""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from quire.clock import Clock, FakeClock, Instant
from quire.errors import Refused

#: The channel of every NOTIFY: it says only that the queue has changed.
CHANNEL = "quire"
#: Types a column of `rows` may have, by the word used there.
_SA_TYPES: dict[str, type[sa.types.TypeEngine[Any]]] = {
    "int": sa.BigInteger,
    "float": sa.Double,
    "text": sa.Text,
    "bool": sa.Boolean,
}


class Vector(sa.types.UserDefinedType[Any]):
    """A list of float32: a blob on SQLite, pgvector's type on PostgreSQL. Given as bytes."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Name the column's type."""
        return "vector"

    def bind_processor(self, dialect: sa.Dialect) -> Any:
        """Give bytes as they are to SQLite, and as text to PostgreSQL."""
        if dialect.name == "sqlite":
            return None
        return vector_text


def vector_text(value: bytes) -> str:
    """Write a vector as PostgreSQL reads it."""
    return str(memoryview(value).cast("f").tolist())


def is_sqlite(conn: sa.Connection | sa.Engine) -> bool:
    """Tell whether this is the embedded database."""
    return conn.dialect.name == "sqlite"


def now(conn: sa.Connection, clock: Clock) -> Instant:
    """Read the time: the database's own on PostgreSQL, this machine's on SQLite."""
    if is_sqlite(conn) or isinstance(clock, FakeClock):
        at = clock.now()
        return at if is_sqlite(conn) else Instant(at.wall, at.wall)
    wall = float(conn.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one())
    return Instant(wall, wall)


def json_rows(conn: sa.Connection, name: str, columns: Mapping[str, str]) -> sa.CTE:
    """Make a table of one JSON parameter called `name`: a list of lists in column order.

    The statement's text is the same for every number of rows, so it is compiled and prepared once.
    """
    key = ("rows", name, *columns.items())
    return cached(conn, key, lambda: _rows(conn, name, columns))


def _rows(conn: sa.Connection, name: str, columns: Mapping[str, str]) -> sa.CTE:
    parameter: sa.ColumnElement[Any] = sa.bindparam(name, type_=sa.Text)
    if is_sqlite(conn):
        each = sa.func.json_each(parameter).table_valued("value", name=f"each_{name}")
    else:
        as_json = sa.cast(parameter, postgresql.JSONB)
        each = sa.func.jsonb_array_elements(as_json).table_valued("value", name=f"each_{name}")
    picked = []
    for at, (key, kind) in enumerate(columns.items()):
        text = each.c.value.op("->>")(sa.literal_column(str(at)))
        # SQLite keeps the JSON type, so a cast would only cost time there.
        value = sa.type_coerce if is_sqlite(conn) else sa.cast
        picked.append(value(text, _SA_TYPES[kind]).label(key))
    # Without MATERIALIZED every mention of a column parses the JSON once more.
    return sa.select(*picked).cte(name).prefix_with("MATERIALIZED")


S = TypeVar("S")
_encode = json.JSONEncoder(separators=(",", ":")).encode
_built: dict[tuple[bool, Hashable], Any] = {}


def cached(conn: sa.Connection, key: Hashable, build: Callable[[], S]) -> S:
    """Return the statement under `key`, built at its first use on this kind of database.

    Building the expression tree costs more than running it on a few rows.
    """
    whole = is_sqlite(conn), key
    if whole not in _built:
        _built[whole] = build()
    return cast(S, _built[whole])


def encode_rows(values: Sequence[Sequence[Any]]) -> str:
    """Encode the parameter of `rows`."""
    return _encode(values)


def sanitize_text(text: str) -> str:
    """Replace what a database refuses in a text: NUL, and halves of surrogate pairs."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def upsert(
    conn: sa.Connection,
    table: sa.Table,
    values: Mapping[str, Any],
    keys: Sequence[str],
    changed: Sequence[str],
) -> None:
    """Insert a row, or set the `changed` columns of the one with the same `keys`."""
    key = ("upsert", table.name, *keys, None, *changed)
    conn.execute(cached(conn, key, lambda: _upserting(conn, table, keys, changed)), dict(values))


def _upserting(
    conn: sa.Connection, table: sa.Table, keys: Sequence[str], changed: Sequence[str]
) -> Any:
    statement: Any = (sqlite.insert if is_sqlite(conn) else postgresql.insert)(table)
    if not changed:
        return statement.on_conflict_do_nothing(index_elements=list(keys))
    return statement.on_conflict_do_update(
        index_elements=list(keys), set_={c: statement.excluded[c] for c in changed}
    )


def greatest(conn: sa.Connection, *values: Any) -> sa.ColumnElement[Any]:
    """Return the larger of several values, row by row."""
    return sa.func.max(*values) if is_sqlite(conn) else sa.func.greatest(*values)


def json_number(
    conn: sa.Connection, column: sa.ColumnElement[Any], key: str
) -> sa.ColumnElement[Any]:
    """Pick a number out of a JSON object that is kept as text."""
    if is_sqlite(conn):
        return sa.type_coerce(column.op("->>")(key), sa.BigInteger)
    return sa.cast(sa.cast(column, postgresql.JSONB).op("->>")(key), sa.BigInteger)


def id_in(conn: sa.Connection, column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """Compare a column with the list of ids given as the parameter `name`; see `id_list`."""
    if is_sqlite(conn):
        each = sa.func.json_each(sa.bindparam(name, type_=sa.Text)).table_valued("value")
        return column.in_(sa.select(each.c.value))
    # An array, not a subquery: PostgreSQL would guess its size and may walk the whole index.
    return column == sa.any_(sa.bindparam(name, type_=postgresql.ARRAY(sa.BigInteger)))


def encode_ids(conn: sa.Connection, ids: Sequence[int]) -> Any:
    """Encode the parameter of `id_in`."""
    return _encode(ids) if is_sqlite(conn) else list(ids)


def lock_rows(conn: sa.Connection, table: sa.Table, ids: Sequence[int]) -> None:
    """Lock rows in the order of their ids, so that two transactions never wait for each other."""
    if is_sqlite(conn) or not ids:
        return
    conn.execute(_locking(conn, table, skip_locked=False), {"ids": list(ids)}).all()


def try_lock_rows(conn: sa.Connection, table: sa.Table, ids: Sequence[int]) -> set[int]:
    """Lock those rows that nobody else has locked, and return their ids."""
    if is_sqlite(conn) or not ids:
        return set(ids)
    return set(conn.scalars(_locking(conn, table, skip_locked=True), {"ids": list(ids)}))


def _locking(conn: sa.Connection, table: sa.Table, *, skip_locked: bool) -> sa.Select[Any]:
    return cached(
        conn,
        ("lock", table.name, skip_locked),
        lambda: (
            sa.select(table.c.id)
            .where(id_in(conn, table.c.id, "ids"))
            .order_by(table.c.id)
            .with_for_update(key_share=True, skip_locked=skip_locked)
        ),
    )


def reserve_ids(conn: sa.Connection, table: sa.Table, count: int) -> list[int]:
    """Take `count` ids for rows that are about to be inserted."""
    if is_sqlite(conn):
        # BEGIN IMMEDIATE keeps every other writer out until the rows are there. Ids of deleted
        # rows are not given out again: the counter survives in `meta`.
        key = f"last_id.{table.name}"
        last = conn.exec_driver_sql(
            "INSERT INTO meta(key, value) VALUES (?, ?) ON CONFLICT(key) DO UPDATE "
            "SET value = CAST(CAST(value AS INTEGER) + ? AS TEXT) RETURNING CAST(value AS INTEGER)",
            (key, str(count), count),
        ).scalar_one()
        return list(range(last - count + 1, last + 1))
    found = conn.exec_driver_sql(
        "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)",
        (table.name, count),
    )
    return [row[0] for row in found]


def notify(conn: sa.Connection) -> None:
    """Send NOTIFY at commit on PostgreSQL; on SQLite a local datagram follows the commit."""
    if not is_sqlite(conn):
        conn.exec_driver_sql(f"NOTIFY {CHANNEL}")


def record_xids(conn: sa.Connection, table: sa.Table) -> None:
    """Let each row name the transaction that wrote it, where ids may commit out of order."""
    if not is_sqlite(conn):
        conn.exec_driver_sql(
            f"ALTER TABLE {table.name} ALTER COLUMN xid "
            "SET DEFAULT (pg_current_xact_id()::text::bigint)"
        )


def index_xids(conn: sa.Connection, table: sa.Table) -> None:
    """Let rows be read in the order of their transactions, where ids may commit out of order."""
    if not is_sqlite(conn):
        conn.exec_driver_sql(
            f"CREATE INDEX IF NOT EXISTS ix_{table.name}_order ON {table.name} (xid, id)"
        )


def oldest_active_xid(conn: sa.Connection) -> int:
    """Return the number below which every transaction has ended.

    0 on SQLite, where transactions do not overlap and ids are in the order of commits.
    """
    if is_sqlite(conn):
        return 0
    return int(
        conn.exec_driver_sql(
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        ).scalar_one()
    )


def explain_plan(
    conn: sa.Connection, statement: sa.Executable, parameters: Mapping[str, Any]
) -> str:
    """Return the query plan as text."""
    compiled = statement.compile(dialect=conn.dialect, compile_kwargs={"render_postcompile": True})  # type: ignore[attr-defined]
    verb = "EXPLAIN QUERY PLAN " if is_sqlite(conn) else "EXPLAIN "
    bound = {**compiled.params, **parameters}
    if compiled.positional:
        found = conn.exec_driver_sql(
            verb + str(compiled), tuple(bound[n] for n in compiled.positiontup)
        )
    else:
        found = conn.exec_driver_sql(verb + str(compiled), bound)
    return "\n".join(str(row[-1]) for row in found)


def use_snapshot(conn: sa.Connection) -> None:
    """Let every statement of this transaction see the same moment; SQLite's always do."""
    if not is_sqlite(conn):
        conn.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def lock_schema(conn: sa.Connection) -> None:
    """Let one process migrate at a time; on SQLite the write lock does."""
    if not is_sqlite(conn):
        conn.exec_driver_sql("SELECT pg_advisory_xact_lock(7134201)")


def integrity_errors(conn: sa.Connection) -> sa.Select[Any]:
    """Select what SQLite finds wrong with its file; PostgreSQL checks its pages by itself."""
    if not is_sqlite(conn):
        return sa.select(sa.literal("")).where(sa.false())
    found = sa.table("pragma_quick_check", sa.column("quick_check", sa.Text)).c.quick_check
    # Broken constraints are not the file's fault: they are named one by one elsewhere.
    return sa.select(found).where(found != "ok", found.not_like("CHECK constraint failed%"))


def last_reserved_id(conn: sa.Connection, table: sa.Table) -> sa.ScalarSelect[Any]:
    """Select the last id that `reserve_ids` gave out for a table."""
    if is_sqlite(conn):
        key, value = sa.column("key", sa.Text), sa.column("value", sa.Text)
        kept = sa.select(sa.cast(value, sa.BigInteger)).select_from(sa.table("meta", key, value))
        return kept.where(key == f"last_id.{table.name}").scalar_subquery()
    sequence = sa.table(f"{table.name}_id_seq", sa.column("last_value", sa.BigInteger))
    return sa.select(sequence.c.last_value).scalar_subquery()


def set_sequence(conn: sa.Connection, table: sa.Table, last: int) -> None:
    """Let PostgreSQL give out the ids behind `last` next."""
    if last:
        conn.exec_driver_sql(
            "SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)", (table.name, last)
        )


def truncate(conn: sa.Connection, tables: Sequence[sa.Table]) -> None:
    """Delete all rows of PostgreSQL tables at once."""
    conn.exec_driver_sql(f"TRUNCATE {', '.join(table.name for table in tables)} RESTART IDENTITY")


def analyze(conn: sa.Connection, tables: Sequence[sa.Table]) -> None:
    """Let PostgreSQL know how large its tables are, before its own daemon does."""
    conn.exec_driver_sql(f"ANALYZE {', '.join(table.name for table in tables)}")


def lift_timeouts(conn: sa.Connection, limit: str = "10min") -> None:
    """Let this transaction read a large database: sessions are else cut off after half a minute."""
    if not is_sqlite(conn):
        chosen = {"statement_timeout": limit, "work_mem": "64MB"}
        if (conn.dialect.server_version_info or ()) >= (17,):
            chosen["transaction_timeout"] = "0"
        set_local(conn, chosen)
        cast(Any, conn.connection.driver_connection).patience = float("inf")


def set_local(conn: sa.Connection, chosen: Mapping[str, str]) -> None:
    """Set parameters of PostgreSQL until the transaction ends, in one round trip."""
    calls = ", ".join(["set_config(%s, %s, true)"] * len(chosen))
    conn.exec_driver_sql(f"SELECT {calls}", tuple(part for each in chosen.items() for part in each))


def create_vector_extension(conn: sa.Connection) -> None:
    """Make the vector type known; SQLite keeps vectors as blobs."""
    if is_sqlite(conn):
        return
    found = conn.exec_driver_sql("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
    if found.first() is None:
        raise Refused(
            "database: this PostgreSQL has no pgvector. Install the extension (Debian: "
            "postgresql-NN-pgvector), then run `quire migrate` again; nothing was changed."
        )
    conn.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector")


def create_text_index(conn: sa.Connection, chunks: sa.Table) -> None:
    """Create the full-text index over chunks; `index_texts` fills it."""
    if is_sqlite(conn):
        # The text is in `chunks` already; only from 3.43 on can rows without text be deleted.
        found = conn.exec_driver_sql("SELECT sqlite_version()").scalar_one()
        is_lean = tuple(int(part) for part in found.split(".")[:2]) >= (3, 43)
        lean = "content='', contentless_delete=1, " if is_lean else ""
        conn.exec_driver_sql(
            f"CREATE VIRTUAL TABLE chunk_words USING fts5(words, {lean}"
            "tokenize='porter unicode61 remove_diacritics 2')"
        )
        return
    conn.exec_driver_sql(f"ALTER TABLE {chunks.name} ADD COLUMN words tsvector")
    conn.exec_driver_sql(f"CREATE INDEX ix_chunks_words ON {chunks.name} USING gin (words)")


def fulltext_columns(conn: sa.Connection, value: str) -> dict[str, str]:
    """Return the extra columns, as SQL, that make a new chunk searchable; none on SQLite."""
    return {} if is_sqlite(conn) else {"words": f"to_tsvector('simple', {value})"}


def index_texts(conn: sa.Connection, texts: Sequence[tuple[int, str]]) -> None:
    """Make chunks findable by their analysed words; a chunk that is indexed is indexed anew."""
    if not texts:
        return
    if is_sqlite(conn):
        text = "INSERT OR REPLACE INTO chunk_words(rowid, words) VALUES (?, ?)"
        conn.exec_driver_sql(text, list(texts))
        return
    text = (
        "UPDATE chunks SET words = to_tsvector('simple', value ->> 1) "
        "FROM jsonb_array_elements(CAST(%s AS jsonb)) value WHERE id = (value ->> 0)::bigint"
    )
    conn.exec_driver_sql(text, (encode_rows(texts),))


def unindex_texts(conn: sa.Connection, ids: Sequence[int]) -> None:
    """Forget the words of chunks that are about to be deleted."""
    if is_sqlite(conn) and ids:
        text = "DELETE FROM chunk_words WHERE rowid IN (SELECT value FROM json_each(?))"
        conn.exec_driver_sql(text, (_encode(ids),))


def advisory_lock(conn: sa.Connection, name: str, *, wait: bool = True) -> bool:
    """Let one transaction at a time go on that names the same; on SQLite the write lock does.

    Returns whether it may; without `wait`, it may not while another one does.
    """
    if is_sqlite(conn):
        return True
    take = "pg_advisory_xact_lock" if wait else "pg_try_advisory_xact_lock"
    found = conn.exec_driver_sql(f"SELECT {take}(hashtextextended(%s, 7))", (name,)).scalar_one()
    return wait or bool(found)
