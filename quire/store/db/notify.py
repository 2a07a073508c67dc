"""Listens for PostgreSQL's NOTIFY on a dedicated connection; SQLite needs none."""

import contextlib
import selectors
from typing import Any

from quire import log
from quire.store.db import dialect, urls
from quire.store.db.engine import Database

#: Short, because the worker's loop blocks meanwhile.
ANSWER_TIMEOUT = 2.0


class Listener:
    """A LISTEN connection; `reopen` opens it again after an error."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._conn: Any = None

    def register(self, selector: selectors.BaseSelector) -> None:
        """Register the open connection as "listener", in place of one that was closed."""
        fd = None if self._conn is None else int(self._conn.fileno())
        known = {key.fd for key in selector.get_map().values() if key.data == "listener"}
        for old in known - {fd}:
            selector.unregister(old)
        if fd is not None and fd not in known:
            selector.register(fd, selectors.EVENT_READ, "listener")

    def reopen(self) -> None:
        """Open the connection unless one is open and works; failures are logged."""
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
            self._conn.answer_timeout = ANSWER_TIMEOUT
            self._conn.execute(f"LISTEN {dialect.CHANNEL}")
        except psycopg.Error as error:
            self.close()
            log.event("listen.failed", level="warning", error=str(error).split("\n")[0])

    def _answers(self) -> bool:
        """Probe the connection: an idle one does not notice that the server is gone.

        A read-only server sends no notifications: another one is primary now.
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
        """Discard the notifications that arrived; a broken connection is closed."""
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
