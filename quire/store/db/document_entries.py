"""The index of the words of whole documents, by *entries*: words in the form of `text.fields`.

SQLite has an FTS5 table for each tenant, whose rows are documents; PostgreSQL an array with a GIN
index. Both only tell which documents have an entry: what a match is worth is computed from that.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.documents import document_words

_GIN = "ix_document_words_entries"
_PENDING_LIST_KB = 64  # the least that PostgreSQL takes
_PREFIX = "document_entries"
#: Where FTS5 ends a word, and we do not: at signs that analysis makes, as of a half, and at letters
#: that were marks in the Unicode that it knows.
_BREAKS = re.compile("(?:[^\\w=~]|[\u19b0-\u19c0\u19c8\u19c9\u1cf2\u1cf3])+")


def create(conn: sa.Connection) -> None:
    """Create what the schema cannot declare: the column of entries and its index."""
    if dialect.is_sqlite(conn):
        return
    conn.exec_driver_sql("ALTER TABLE document_words ADD COLUMN IF NOT EXISTS entries text[]")
    # Its statistics would be the most common of hundreds of millions of words.
    conn.exec_driver_sql("ALTER TABLE document_words ALTER entries SET STATISTICS 0")
    conn.exec_driver_sql(f"CREATE INDEX IF NOT EXISTS {_GIN} ON document_words USING gin (entries)")


def shorten_pending_list(conn: sa.Connection) -> None:
    """Limit the list of rows that wait for the GIN index, and empty it (PostgreSQL)."""
    if dialect.is_sqlite(conn):
        return
    conn.exec_driver_sql(f"ALTER INDEX {_GIN} SET (gin_pending_list_limit = {_PENDING_LIST_KB})")
    conn.exec_driver_sql(f"SELECT gin_clean_pending_list('{_GIN}')")


def table_of(tenant: str) -> str:
    """Return the name of the FTS5 table of a tenant."""
    return _PREFIX + dialect.words_table(tenant).removeprefix("chunk_words")


def _has_table(conn: sa.Connection, tenant: str) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
    return bool(conn.exec_driver_sql(query, (table_of(tenant),)).scalar_one())


def put(conn: sa.Connection, row: Mapping[str, Any], entries: Sequence[str]) -> None:
    """Replace what the index has of a document; `row` is one of `document_words`."""
    document_id, tenant = row["document_id"], row["tenant"]
    changed = [name for name in row if name != "document_id"]
    dialect.upsert(conn, document_words, row, ["document_id"], changed)
    if not dialect.is_sqlite(conn):
        conn.exec_driver_sql(
            "UPDATE document_words SET entries = "
            "ARRAY(SELECT jsonb_array_elements_text(CAST(%s AS jsonb))) WHERE document_id = %s",
            (dialect.encode_rows([dialect.sanitize_text(each) for each in entries]), document_id),
        )
        return
    table = table_of(tenant)
    if not _has_table(conn, tenant):
        dialect.create_fts5(
            conn, table, "entries", "unicode61 remove_diacritics 0 tokenchars ''=~''", "none"
        )
    text = " ".join(map(dialect.sanitize_text, entries))
    query = f"INSERT OR REPLACE INTO {table}(rowid, entries) VALUES (?, ?)"  # noqa: S608
    conn.exec_driver_sql(query, (document_id, text))


def delete(conn: sa.Connection, ids: Sequence[int]) -> None:
    """Remove documents from the index."""
    given = {"ids": dialect.encode_ids(conn, ids)}
    mine = dialect.id_in(conn, document_words.c.document_id, "ids")
    if dialect.is_sqlite(conn):
        found = conn.execute(
            sa.select(document_words.c.tenant, document_words.c.document_id).where(mine), given
        ).all()
        for tenant in {row.tenant for row in found}:
            some = [row.document_id for row in found if row.tenant == tenant]
            conn.exec_driver_sql(
                f"DELETE FROM {table_of(tenant)} "  # noqa: S608
                "WHERE rowid IN (SELECT value FROM json_each(?))",
                (dialect.encode_rows(some),),
            )
    conn.execute(sa.delete(document_words).where(mine), given)


def matching(
    conn: sa.Connection,
    tenant: str,
    entries: Sequence[str],
    most: int,
    within: Sequence[int] | None = None,
) -> list[list[int]]:
    """Return up to `most` documents that have each entry, in no order; `within` restricts them."""
    if not entries:
        return []
    given = dialect.encode_rows(list(map(dialect.sanitize_text, entries)))
    if not dialect.is_sqlite(conn):
        only = "" if within is None else "AND document_id + 0 = ANY(CAST(%s AS bigint[]))"
        # By the GIN index alone: the planner believes that to unpack the entries of all documents
        # of a tenant costs nothing.
        dialect.set_local(conn, {"enable_seqscan": "off", "enable_bitmapscan": "on"})
        one = (
            "SELECT document_id FROM document_words WHERE (tenant || '') = %s "  # noqa: S608
            f"AND entries @> ARRAY[value] {only} LIMIT {most}"
        )
        ids = () if within is None else (dialect.encode_ids(conn, within),)
        rows = conn.exec_driver_sql(
            f"SELECT ARRAY({one}) FROM jsonb_array_elements_text(CAST(%s AS jsonb)) value",  # noqa: S608
            (tenant, *ids, given),
        )
        return [found for (found,) in rows]
    if not _has_table(conn, tenant):
        return [[] for _ in entries]
    table = table_of(tenant)
    # The plus makes it a filter on matches; otherwise FTS5 is queried once per id.
    only = "" if within is None else "AND +rowid IN (SELECT value FROM json_each(?))"
    one = f"SELECT rowid FROM {table} WHERE {table} MATCH value {only} LIMIT {most}"  # noqa: S608
    quoted = dialect.encode_rows(list(map(_quoted, entries)))
    ids = () if within is None else (dialect.encode_ids(conn, within),)
    rows = conn.exec_driver_sql(
        f"SELECT (SELECT json_group_array(rowid) FROM ({one})) FROM json_each(?)",  # noqa: S608
        (*ids, quoted),
    )
    return [dialect.decode_rows(found) for (found,) in rows]


def _quoted(entry: str) -> str:
    """Return an entry as FTS5 asks for it: an index without positions knows no phrases."""
    return " ".join(f'"{part}"' for part in _BREAKS.split(entry))
