"""Creates the table of the limits of tenants."""

import sqlalchemy as sa

from quire.store.db.schema.access import tenants
from quire.store.db.schema.queue import metadata


def up(conn: sa.Connection) -> None:
    """Create the table."""
    metadata.create_all(conn, tables=[tenants])
