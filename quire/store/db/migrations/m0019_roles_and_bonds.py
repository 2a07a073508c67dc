"""Marks instance admins, binds tokens to a corpus, users to identities, sessions to an address.

The next start of the API makes the admins of its tenant instance admins. Older releases would let
each of them operate the installation, and would not see the bond of a token, so they have to stop.
"""

import sqlalchemy as sa

from quire.store.db import dialect
from quire.store.db.schema.access import USERS_BY_IDENTITY, sessions, tokens, users


def up(conn: sa.Connection) -> None:
    """Add the columns and the index."""
    dialect.add_columns(
        conn,
        users.c.operates,
        users.c.issuer,
        users.c.subject,
        tokens.c.corpus_id,
        tokens.c.address,
        sessions.c.address,
    )
    USERS_BY_IDENTITY.create(conn, checkfirst=True)
