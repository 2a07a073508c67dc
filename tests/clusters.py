"""The cluster with a migrated database `quire` that every PostgreSQL server of a run starts from.

Making a cluster and migrating takes seconds, copying one that is stopped does not.
"""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests import scratch
from tests.postgres import Server


def seed(run_folder: Path) -> Path:
    """Return the folder of the stopped cluster, which the first who asks makes."""
    from quire.store import open_database

    server = Server(run_folder / "seed", "quire")
    with scratch.locked(run_folder / "seed.lock"):
        if not server.folder.exists():
            server.create()
            server.start()
            with psycopg.connect(server.url_of("postgres"), autocommit=True) as admin:
                admin.execute("CREATE DATABASE quire")
            database = open_database(server.url)
            database.migrate()
            database.close()
            server.stop()
    return server.folder
