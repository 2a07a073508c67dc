"""Hears PostgreSQL's NOTIFY on a connection of its own; SQLite has none and needs none."""

import contextlib
from typing import Any

from quire import log
from quire.store.db import dialect, urls
from quire.store.db.engine import Database

#: An answer that takes longer is not waited for: the worker's loop stands still meanwhile.
PATIENCE = 2.0


class Listener:
    """A connection that waits for rings; after an error it is opened again by `reopen`."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._conn: Any = None

    @property
    def fileno(self) -> int | None:
        """The descriptor to select on, while the connection is open."""
        return None if self._conn is None else int(self._conn.fileno())

    def reopen(self) -> None:
        """Open the connection unless one is open and answers; a database that is down is logged."""
        if self._db.path is not None or self._answers():
            return
        import psycopg

        from quire.store.db import postgres

        lease = self._db.lease_seconds
        given = {**postgres.connect_args(lease), "autocommit": True}
        try:
            self._conn = postgres.connect(
                postgres.Timeouts.below(lease), urls.plain_url(self._db.engine), **given
            )
            self._conn.patience = PATIENCE
            self._conn.execute(f"LISTEN {dialect.CHANNEL}")
        except psycopg.Error as error:
            self.close()
            log.event("listen.failed", level="warning", error=str(error).split("\n")[0])

    def _answers(self) -> bool:
        """Try a connection that only listens: nothing else tells that its end is gone.

        Nobody rings at a server that cannot be written to: another one has taken over.
        """
        import psycopg

        if self._conn is not None:
            try:
                can_write = self._conn.can_write()
            except psycopg.Error:
                can_write = False
            if not can_write:
                self.close()
        return self._conn is not None

    def heard(self) -> None:
        """Take the rings that arrived; a broken connection is closed."""
        import psycopg

        try:
            for _ in self._conn.notifies(timeout=0):
                pass
        except psycopg.Error:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._conn is not None:
            with contextlib.suppress(Exception):
                self._conn.close()
            self._conn = None
