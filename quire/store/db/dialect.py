"""SQL that differs between SQLite and PostgreSQL, one function per difference.

Only `store.db` and `store.search` branch on the database (`is_sqlite`); every other module calls
a function of these. Outside the store, `Database.is_embedded` decides what a user sees. A test
(`tests/docs/test_style.py`) checks both.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from quire.clock import Clock, FakeClock, Instant
from quire.store.db import last_ids
from quire.store.db.sqlite_driver import Run

#: The channel of every NOTIFY: it says only that the queue has changed.
CHANNEL = "quire"
#: Column types of `json_rows`, by name.
_SA_TYPES: dict[str, type[sa.types.TypeEngine[Any]]] = {
    "int": sa.BigInteger,
    "float": sa.Double,
    "text": sa.Text,
    "bool": sa.Boolean,
}


class Vector(sa.types.UserDefinedType[Any]):
    """A float32 vector, given as bytes: a blob on SQLite, pgvector's type on PostgreSQL."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Name the column's type."""
        return "vector"

    def bind_processor(self, dialect: sa.Dialect) -> Any:
        """Pass bytes to SQLite and text to PostgreSQL."""
        if dialect.name == "sqlite":
            return None
        return vector_text


def vector_text(value: bytes) -> str:
    """Format a vector as pgvector's text."""
    return str(memoryview(value).cast("f").tolist())


def _postgresql() -> Any:
    """Return SQLAlchemy's dialect, which takes 20 ms to import, so not where SQLite is used."""
    from sqlalchemy.dialects import postgresql

    return postgresql


def jsonb(value: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Cast JSON stored as text to PostgreSQL's type."""
    found: sa.ColumnElement[Any] = sa.cast(value, _postgresql().JSONB)
    return found


def is_sqlite(conn: sa.Connection | sa.Engine) -> bool:
    """Tell whether this is SQLite."""
    return conn.dialect.name == "sqlite"


def now(conn: sa.Connection, clock: Clock) -> Instant:
    """Read the time: the database's own on PostgreSQL, this machine's on SQLite."""
    if is_sqlite(conn) or isinstance(clock, FakeClock):
        at = clock.now()
        return at if is_sqlite(conn) else Instant(at.wall, at.wall)
    wall = float(conn.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one())
    return Instant(wall, wall)


S = TypeVar("S")
P = ParamSpec("P")
_encode = json.JSONEncoder(separators=(",", ":")).encode
_built: dict[Hashable, Any] = {}


def statement(
    build: Callable[Concatenate[sa.Connection, P], S],
) -> Callable[Concatenate[sa.Connection, P], S]:
    """Build a statement once for each database type and other arguments.

    Building the expression tree costs more than running it on a few rows.
    """

    @functools.wraps(build)
    def built(conn: sa.Connection, /, *args: P.args, **named: P.kwargs) -> S:
        key = (build, is_sqlite(conn), *args, *named.values())
        if key not in _built:
            _built[key] = build(conn, *args, **named)
        return cast(S, _built[key])

    return built


def runner(conn: sa.Connection) -> Run:
    """Return a function that runs plain SQL with `:name` parameters on this connection."""
    return lambda statement, given: list(conn.execute(sa.text(statement), given))


def json_rows(conn: sa.Connection, name: str, columns: Mapping[str, str]) -> sa.CTE:
    """Return a table of one JSON parameter called `name`: a list of lists in column order.

    The statement's text does not depend on the number of rows, so it is compiled and prepared once.
    """
    return _rows(conn, name, tuple(columns.items()))


@statement
def _rows(conn: sa.Connection, name: str, columns: tuple[tuple[str, str], ...]) -> sa.CTE:
    parameter: sa.ColumnElement[Any] = sa.bindparam(name, type_=sa.Text)
    if is_sqlite(conn):
        each = sa.func.json_each(parameter).table_valued("value", name=f"each_{name}")
    else:
        elements = sa.func.jsonb_array_elements(jsonb(parameter))
        each = elements.table_valued("value", name=f"each_{name}")
    picked = []
    for at, (key, kind) in enumerate(columns):
        text = each.c.value.op("->>")(sa.literal_column(str(at)))
        # SQLite keeps the JSON type; a cast would only cost time.
        value = sa.type_coerce if is_sqlite(conn) else sa.cast
        picked.append(value(text, _SA_TYPES[kind]).label(key))
    # Without MATERIALIZED each reference to a column parses the JSON again.
    return sa.select(*picked).cte(name).prefix_with("MATERIALIZED")


def encode_rows(values: Sequence[Sequence[Any]]) -> str:
    """Encode the parameter of `json_rows`."""
    return _encode(values)


def array_rows(name: str, columns: Mapping[str, str]) -> sa.TableValuedAlias:
    """Return a table of one array for each column; only PostgreSQL has them.

    The arrays are the parameters `NAME_COLUMN`, see `encode_array`. Unpacking JSON takes longer.
    """
    arrays = [
        sa.cast(sa.bindparam(f"{name}_{key}", type_=sa.types.NULLTYPE), sa.ARRAY(_SA_TYPES[kind]))
        for key, kind in columns.items()
    ]
    picked = [sa.column(key, _SA_TYPES[kind]) for key, kind in columns.items()]
    return sa.func.unnest(*arrays).table_valued(*picked, name=name).render_derived()


def encode_array(values: Iterable[float | str | None]) -> str:
    """Encode a parameter of `array_rows` as PostgreSQL writes arrays."""
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: float | str | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        escaped = sanitize_text(value).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)


def server_time(name: str) -> sa.ColumnElement[float]:
    """Return the time of PostgreSQL at the start of the statement, or that of the parameter."""
    now = sa.cast(sa.func.extract("epoch", sa.func.statement_timestamp()), sa.Double)
    given = sa.bindparam(name, type_=sa.Double)
    return sa.select(sa.func.coalesce(given, now)).scalar_subquery()


def decode_rows(text: str) -> Any:
    """Decode a JSON value that SQLite has made."""
    return json.loads(text)


def sanitize_text(text: str) -> str:
    """Replace characters that databases refuse: NUL and lone surrogates."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def upsert(
    conn: sa.Connection,
    table: sa.Table,
    values: Mapping[str, Any],
    keys: Sequence[str],
    changed: Sequence[str],
) -> None:
    """Insert a row, or update the `changed` columns of the row with the same `keys`."""
    conn.execute(_upsert(conn, table, tuple(keys), tuple(changed)), dict(values))


@statement
def _upsert(
    conn: sa.Connection, table: sa.Table, keys: Sequence[str], changed: Sequence[str]
) -> Any:
    statement: Any = (sqlite if is_sqlite(conn) else _postgresql()).insert(table)
    if not changed:
        return statement.on_conflict_do_nothing(index_elements=list(keys))
    return statement.on_conflict_do_update(
        index_elements=list(keys), set_={c: statement.excluded[c] for c in changed}
    )


def greatest(conn: sa.Connection | sa.Engine, *values: Any) -> sa.ColumnElement[Any]:
    """Return the greatest of several values."""
    return sa.func.max(*values) if is_sqlite(conn) else sa.func.greatest(*values)


def json_number(
    conn: sa.Connection, column: sa.ColumnElement[Any], key: str
) -> sa.ColumnElement[Any]:
    """Extract a number from a JSON object stored as text."""
    if is_sqlite(conn):
        return sa.type_coerce(column.op("->>")(key), sa.BigInteger)
    return sa.cast(jsonb(column).op("->>")(key), sa.BigInteger)


def execute_both(
    conn: sa.Connection, first: sa.Update, second: sa.Update, given: Mapping[str, Any]
) -> None:
    """Execute two updates of different tables; in one round trip on PostgreSQL."""
    if is_sqlite(conn):
        conn.execute(first, given)
        conn.execute(second, given)
        return
    conn.execute(_both(conn, first, second), given)


@statement
def _both(_: sa.Connection, first: sa.Update, second: sa.Update) -> sa.Update:
    return second.add_cte(first.cte("first"))


def id_in(conn: sa.Connection, column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """Test a column against the ids of the parameter `name`; see `encode_ids`."""
    if is_sqlite(conn):
        each = sa.func.json_each(sa.bindparam(name, type_=sa.Text)).table_valued("value")
        return column.in_(sa.select(each.c.value))
    # An array, not a subquery: PostgreSQL guesses a subquery's size and may scan the whole index.
    text = sa.bindparam(name, type_=sa.types.NULLTYPE)
    return column == sa.any_(sa.cast(text, sa.ARRAY(sa.BigInteger)))


def encode_ids(conn: sa.Connection, ids: Sequence[int]) -> str:
    """Encode the parameter of `id_in`."""
    # As text on PostgreSQL too: the driver would look at each number of a list several times.
    return _encode(ids) if is_sqlite(conn) else f"{{{','.join(map(str, ids))}}}"


def has_row_locks(conn: sa.Connection) -> bool:
    """Tell whether rows can be locked; on SQLite the write lock covers the whole database."""
    return not is_sqlite(conn)


def lock_rows(conn: sa.Connection, table: sa.Table, ids: Sequence[int]) -> None:
    """Lock rows in id order, so that transactions cannot deadlock."""
    if is_sqlite(conn) or not ids:
        return
    conn.execute(_lock(conn, table, False), {"ids": encode_ids(conn, ids)}).all()


def try_lock_rows(conn: sa.Connection, table: sa.Table, ids: Sequence[int]) -> set[int]:
    """Lock the rows that are not locked (SKIP LOCKED), and return their ids."""
    if is_sqlite(conn) or not ids:
        return set(ids)
    return set(conn.scalars(_lock(conn, table, True), {"ids": encode_ids(conn, ids)}).all())


def has_locked(conn: sa.Connection, table: sa.Table, ids: Sequence[int]) -> bool:
    """Lock rows without waiting; returns False if another transaction has one of them."""
    return try_lock_rows(conn, table, ids) >= set(ids)


@statement
def _lock(conn: sa.Connection, table: sa.Table, skip_locked: bool) -> sa.Select[Any]:
    return (
        sa.select(table.c.id)
        .where(id_in(conn, table.c.id, "ids"))
        .order_by(table.c.id)
        .with_for_update(key_share=True, skip_locked=skip_locked)
    )


def reserve_ids(conn: sa.Connection, table: sa.Table, count: int) -> list[int]:
    """Reserve `count` ids for rows that are about to be inserted."""
    if is_sqlite(conn):
        # BEGIN IMMEDIATE excludes other writers until the rows exist.
        last = conn.exec_driver_sql(f"SELECT {last_ids.last_id(table.name)}").scalar_one()
        return list(range(last + 1, last + count + 1))
    found = conn.exec_driver_sql(
        "SELECT nextval(%s) FROM generate_series(1, %s)", (f"{table.name}_id_seq", count)
    )
    return [number for (number,) in found]


def notify(conn: sa.Connection) -> None:
    """Send NOTIFY at commit on PostgreSQL; on SQLite a local datagram follows the commit."""
    if not is_sqlite(conn):
        conn.exec_driver_sql(f"NOTIFY {CHANNEL}")


def add_columns(conn: sa.Connection, *columns: sa.Column[Any]) -> None:
    """Add those of the columns that their table lacks."""
    for column in columns:
        table = column.table.name
        if column.name not in {each["name"] for each in sa.inspect(conn).get_columns(table)}:
            kind = column.type.compile(conn.dialect)
            conn.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {column.name} {kind}")


def erase_freed(conn: sa.Connection) -> None:
    """Let what this connection deletes or overwrites be erased from the file (SQLite)."""
    if is_sqlite(conn):
        conn.exec_driver_sql("PRAGMA secure_delete = ON")


def oldest_active_xid(conn: sa.Connection) -> int:
    """Return the oldest transaction id still active (xmin): all below have ended.

    0 on SQLite, where writes do not overlap and ids are in commit order.
    """
    if is_sqlite(conn):
        return 0
    return int(
        conn.exec_driver_sql(
            "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        ).scalar_one()
    )


#: How far `adopt_foreign_xids` moves transaction ids; modulo this, they stay what they were.
XID_SHIFT = 1 << 48
_IS_FOREIGN = "xid >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


def has_foreign_xids(conn: sa.Connection, table: sa.Table) -> bool:
    """Tell whether there are transaction ids that this cluster has not given out yet."""
    if is_sqlite(conn):
        return False
    query = f"SELECT EXISTS (SELECT 1 FROM {table.name} WHERE {_IS_FOREIGN})"  # noqa: S608
    return bool(conn.exec_driver_sql(query).scalar_one())


def adopt_foreign_xids(conn: sa.Connection, table: sa.Table) -> None:
    """Put rows that a dump has brought along before all transactions of this cluster, in order.

    Their ids are all lower than those of rows that were written here.
    """
    if is_sqlite(conn):
        return
    # As many rows as the log has: longer than other statements may take.
    conn.exec_driver_sql("SET LOCAL statement_timeout = 0")
    conn.exec_driver_sql("SET LOCAL transaction_timeout = 0")
    restored = f"id <= (SELECT max(id) FROM {table.name} WHERE {_IS_FOREIGN})"  # noqa: S608
    conn.exec_driver_sql(f"UPDATE {table.name} SET xid = xid - {XID_SHIFT} WHERE {restored}")  # noqa: S608


def use_snapshot(conn: sa.Connection) -> None:
    """Give all statements of this transaction one snapshot; SQLite always does."""
    if not is_sqlite(conn):
        conn.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def lock_schema(conn: sa.Connection) -> None:
    """Let one process migrate at a time; on SQLite the write lock suffices."""
    if not is_sqlite(conn):
        conn.exec_driver_sql("SELECT pg_advisory_xact_lock(7134201)")


def integrity_errors(conn: sa.Connection) -> sa.Select[Any]:
    """Select the results of SQLite's quick_check; PostgreSQL checks its pages itself."""
    if not is_sqlite(conn):
        return sa.select(sa.literal("")).where(sa.false())
    found = sa.table("pragma_quick_check", sa.column("quick_check", sa.Text)).c.quick_check
    # Violated constraints are not file damage; other invariants report them.
    return sa.select(found).where(found != "ok", found.not_like("CHECK constraint failed%"))


def last_reserved_id(conn: sa.Connection, table: sa.Table) -> sa.ScalarSelect[Any]:
    """Select the last id that `reserve_ids` returned for a table; null if it cannot know."""
    if is_sqlite(conn):
        return sa.select(last_ids.guarded(table.name)).scalar_subquery()
    sequence = sa.table(f"{table.name}_id_seq", sa.column("last_value", sa.BigInteger))
    return sa.select(sequence.c.last_value).scalar_subquery()


def set_sequence(conn: sa.Connection, table: sa.Table, last: int) -> None:
    """Set PostgreSQL's id sequence so that ids continue after `last`."""
    if last:
        conn.exec_driver_sql(
            "SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)", (table.name, last)
        )


def truncate(conn: sa.Connection, tables: Sequence[sa.Table]) -> None:
    """Truncate PostgreSQL tables."""
    conn.exec_driver_sql(f"TRUNCATE {', '.join(table.name for table in tables)} RESTART IDENTITY")


def analyze(conn: sa.Connection, tables: Sequence[sa.Table]) -> None:
    """Update PostgreSQL's planner statistics now instead of waiting for autovacuum."""
    conn.exec_driver_sql(f"ANALYZE {', '.join(table.name for table in tables)}")


def lift_timeouts(conn: sa.Connection, limit: str = "10min") -> None:
    """Raise the timeouts of this transaction, for statements over a large database."""
    if not is_sqlite(conn):
        chosen = {"statement_timeout": limit, "work_mem": "64MB"}
        if (conn.dialect.server_version_info or ()) >= (17,):
            chosen["transaction_timeout"] = "0"
        set_local(conn, chosen)
        cast(Any, conn.connection.driver_connection).answer_timeout = float("inf")


def set_local(conn: sa.Connection, chosen: Mapping[str, str]) -> None:
    """Set PostgreSQL parameters for this transaction, in one round trip."""
    calls = ", ".join(["set_config(%s, %s, true)"] * len(chosen))
    conn.exec_driver_sql(f"SELECT {calls}", tuple(part for each in chosen.items() for part in each))


def fulltext_columns(conn: sa.Connection, value: str) -> dict[str, str]:
    """Return the extra columns, as SQL, that make a new chunk searchable; none on SQLite."""
    return {} if is_sqlite(conn) else {"words": f"to_tsvector('simple', {value})"}


def words_table(tenant: str) -> str:
    """Return the name of the full-text index of a tenant on SQLite.

    Each tenant has its own: FTS5 scores by the frequencies of words in the whole index, which would
    tell one tenant what is in the documents of others.
    """
    if tenant == "default":
        return "chunk_words"
    return f"chunk_words_{hashlib.blake2b(tenant.encode(), digest_size=12).hexdigest()}"


def has_words_table(conn: sa.Connection, tenant: str) -> bool:
    """Tell whether a tenant has a full-text index on SQLite: its first text makes it."""
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
    return bool(conn.exec_driver_sql(query, (words_table(tenant),)).scalar_one())


def create_words_table(conn: sa.Connection, tenant: str) -> None:
    """Create the full-text index of a tenant on SQLite, if it is missing."""
    create_fts5(conn, words_table(tenant), "words", "porter unicode61 remove_diacritics 2")


def create_fts5(
    conn: sa.Connection, table: str, column: str, tokenizer: str, detail: str = "full"
) -> None:
    """Create an FTS5 table of one column that does not keep its text, if it is missing."""
    # Deletes from such a table need SQLite 3.43.
    found = conn.exec_driver_sql("SELECT sqlite_version()").scalar_one()
    is_lean = tuple(int(part) for part in found.split(".")[:2]) >= (3, 43)
    lean = "content='', contentless_delete=1, " if is_lean else ""
    conn.exec_driver_sql(
        f"CREATE VIRTUAL TABLE IF NOT EXISTS {table} USING fts5({column}, {lean}"
        f"detail={detail}, tokenize='{tokenizer}')"
    )


def index_texts(conn: sa.Connection, tenant: str, texts: Sequence[tuple[int, str]]) -> None:
    """Index the analysed words of a tenant's chunks, replacing earlier entries."""
    if not texts:
        return
    if is_sqlite(conn):
        if not has_words_table(conn, tenant):
            create_words_table(conn, tenant)
        text = f"INSERT OR REPLACE INTO {words_table(tenant)}(rowid, words) VALUES (?, ?)"  # noqa: S608
        conn.exec_driver_sql(text, list(texts))
        return
    text = (
        "UPDATE chunks SET words = to_tsvector('simple', value ->> 1) "
        "FROM jsonb_array_elements(CAST(%s AS jsonb)) value WHERE id = (value ->> 0)::bigint"
    )
    conn.exec_driver_sql(text, (encode_rows(texts),))


def unindex_texts(conn: sa.Connection, tenant: str, ids: Sequence[int]) -> None:
    """Remove a tenant's chunks that are about to be deleted from the full-text index."""
    if is_sqlite(conn) and ids and has_words_table(conn, tenant):
        text = (
            f"DELETE FROM {words_table(tenant)} "  # noqa: S608
            "WHERE rowid IN (SELECT value FROM json_each(?))"
        )
        conn.exec_driver_sql(text, (_encode(ids),))


def is_indexed(
    conn: sa.Connection, chunk_id: sa.ColumnElement[Any], tenant: sa.ColumnElement[str]
) -> sa.ColumnElement[bool]:
    """Tell whether a chunk is in the full-text index of its tenant."""
    if not is_sqlite(conn):
        return sa.literal_column("chunks.words").is_not(None)
    names = conn.exec_driver_sql("SELECT DISTINCT tenant FROM chunks").scalars().all()
    is_known: list[tuple[Any, Any]] = []
    for name in names:
        if has_words_table(conn, name):
            known = sa.table(f"{words_table(name)}_docsize", sa.column("id", sa.BigInteger))
            is_known.append((tenant == name, sa.exists().where(known.c.id == chunk_id)))
    return sa.case(*is_known, else_=sa.false()) if is_known else sa.false()


def vector_dimensions(conn: sa.Connection, vector: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return the number of dimensions of a stored vector."""
    return sa.func.length(vector) / 4.0 if is_sqlite(conn) else sa.func.vector_dims(vector)


def advisory_lock(conn: sa.Connection, name: str, *, wait: bool = True) -> bool:
    """Take a named lock until the transaction ends; on SQLite the write lock suffices.

    Returns whether the lock was taken; always true with `wait`.
    """
    if is_sqlite(conn):
        return True
    take = "pg_advisory_xact_lock" if wait else "pg_try_advisory_xact_lock"
    found = conn.exec_driver_sql(f"SELECT {take}(hashtextextended(%s, 7))", (name,)).scalar_one()
    return wait or bool(found)
