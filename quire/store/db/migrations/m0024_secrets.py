"""Creates the table of sealed secrets. `quire doctor --repair` seals those of earlier releases.

Older releases would open sources with marks in place of passwords, so they have to stop.
"""

import sqlalchemy as sa

from quire.store.db.schema.access import secrets


def up(conn: sa.Connection) -> None:
    """Create the table."""
    secrets.create(conn, checkfirst=True)
