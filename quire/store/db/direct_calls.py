"""Calls of PostgreSQL procedures that commit, on connections of their own.

A transaction of the pool takes three round trips, and the pool and SQLAlchemy cost more than a
short call does. These connections stay in autocommit mode, and a call is one prepared statement
sent through libpq: a cursor of the driver takes twice as long.
"""

import queue
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire import log

#: Connections at most; further threads wait for one.
MOST = 4
WAIT_SECONDS = 10.0


class _Session:
    """A connection, and the statements that it has prepared."""

    def __init__(self, conn: Any) -> None:
        from psycopg import errors, generators, pq

        self._conn = conn
        self._execute, self._ok = generators.execute, pq.ExecStatus.TUPLES_OK
        self._failed = errors.error_from_result
        self._names: dict[str, bytes] = {}

    def call(self, text: str, values: Sequence[Any]) -> str | None:
        """Run a statement, and return the first column of its only row as text."""
        conn, server = self._conn, self._conn.pgconn
        if (name := self._names.get(text)) is None:
            name = f"call_{len(self._names)}".encode()
            server.send_prepare(name, text.encode())
            [prepared] = conn.wait(self._execute(server))
            if prepared.error_message:
                raise self._failed(prepared)
            self._names[text] = name
        given = [None if value is None else str(value).encode() for value in values]
        server.send_query_prepared(name, given)
        # The driver's own wait, because it ends when the server does not answer.
        [result] = conn.wait(self._execute(server))
        if result.status != self._ok:
            raise self._failed(result)
        found: bytes | None = result.get_value(0, 0)
        return None if found is None else found.decode()

    def close(self) -> None:
        """Close the connection."""
        self._conn.close()


class DirectCalls:
    """Runs calls, each on a connection that no other thread uses meanwhile."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._errors: Any = engine.dialect.loaded_dbapi
        # One token for each connection. A semaphore takes ten times as long.
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(MOST):
            self._free.put(None)
        self._idle: list[_Session] = []

    def run(self, text: str, values: Sequence[Any]) -> str | None:
        """Run a statement with parameters `$1`, …; returns the first column of its only row.

        Returns None if it is null, or if the database or the connection failed, whatever was
        committed.
        """
        try:
            self._free.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            return None
        session: _Session | None = None
        try:
            session = self._take()
            found = session.call(text, values)
            self._idle.append(session)
        except self._errors.ProgrammingError:
            if session is not None:
                session.close()
            raise
        except (self._errors.Error, sa.exc.DBAPIError) as error:
            # A connection, a lock, a server that became read-only.
            log.event("database.conflict", level="debug", error=str(error).split("\n")[0])
            if session is not None:
                session.close()
            return None
        else:
            return found
        finally:
            self._free.put(None)

    def close(self) -> None:
        """Close the idle connections; the next call opens another."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> _Session:
        try:
            return self._idle.pop()
        except IndexError:
            return self._open()

    def _open(self) -> _Session:
        pooled = self._engine.raw_connection()
        driver: Any = pooled.driver_connection
        pooled.detach()
        driver.autocommit = True
        return _Session(driver)
