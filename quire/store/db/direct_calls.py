"""Calls of PostgreSQL procedures that commit, on connections of their own.

A transaction of the pool takes three round trips, and the pool and SQLAlchemy cost more than a
short call does. These connections stay in autocommit mode.
"""

import threading
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire import log

#: Connections at most; further threads wait for one.
MOST = 4
WAIT_SECONDS = 10.0


class DirectCalls:
    """Runs calls, each on a connection that no other thread uses meanwhile."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._errors: Any = engine.dialect.loaded_dbapi
        self._free = threading.Semaphore(MOST)
        self._idle: list[Any] = []

    def run(self, text: str, values: Sequence[Any]) -> Any:
        """Run a statement, and return the first column of its first row.

        Returns None if the database or the connection failed, whatever was committed.
        """
        if not self._free.acquire(timeout=WAIT_SECONDS):
            return None
        cursor: Any = None
        try:
            cursor = self._take()
            found = cursor.execute(text, values, prepare=True).fetchone()[0]
            self._idle.append(cursor)
        except self._errors.ProgrammingError:
            cursor.connection.close()
            raise
        except (self._errors.Error, sa.exc.DBAPIError) as error:
            # A connection, a lock, a server that became read-only.
            log.event("database.conflict", level="debug", error=str(error).split("\n")[0])
            if cursor is not None:
                cursor.connection.close()
            return None
        else:
            return found
        finally:
            self._free.release()

    def close(self) -> None:
        """Close the idle connections; the next call opens another."""
        while self._idle:
            self._idle.pop().connection.close()

    def _take(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            return self._open()

    def _open(self) -> Any:
        pooled = self._engine.raw_connection()
        driver: Any = pooled.driver_connection
        pooled.detach()
        driver.autocommit = True
        return driver.cursor()
