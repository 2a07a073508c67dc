"""Gives each tenant a full-text index of its own on SQLite, so that no score tells of others.

The common index keeps no texts: those of other tenants than `default` are analysed again.
"""

import sqlalchemy as sa

from quire.store.db import dialect

#: An older Quire would index all tenants together.
OLDEST = 15
_BATCH = 500


def up(conn: sa.Connection) -> None:
    """Move the chunks of other tenants out of the common index."""
    if not dialect.is_sqlite(conn):
        return
    from quire.text.words import fts5_input

    last, run = 0, conn.exec_driver_sql
    while rows := run(
        "SELECT id, tenant, text, language FROM chunks WHERE id > ? AND tenant <> 'default' "
        "ORDER BY id LIMIT ?",
        (last, _BATCH),
    ).all():
        last = rows[-1].id
        for tenant in {row.tenant for row in rows}:
            mine = [row for row in rows if row.tenant == tenant]
            dialect.index_texts(
                conn, tenant, [(row.id, fts5_input(row.text, row.language)) for row in mine]
            )
        dialect.unindex_texts(conn, "default", [row.id for row in rows])
