"""Calls of PostgreSQL procedures and of statements that are transactions of their own.

A transaction of the pool takes three round trips, and the pool and SQLAlchemy cost more than a
short call does. These connections stay in autocommit mode, and a call is one prepared statement
sent through libpq: a cursor of the driver takes twice as long. Each statement is planned once a
session, for tables of any size: so it finds every row by an index.
"""

import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from quire import log
from quire.store.db import urls

R = TypeVar("R")
#: Connections at most; further threads wait for one.
MOST = 4
WAIT_SECONDS = 10.0
#: The sessions of the pool plan each execution for its parameters, which takes up to a millisecond.
#: A plan that is made while a table is small must not scan it when it has grown.
_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
#: A prepared statement that is missing or there already: a pooler gave the session to others.
_FORGOTTEN = ("26000", "42P05")
#: A statement with its parameters, by position or by name.
Call = tuple[str, Sequence[Any] | Mapping[str, Any]]


class _Session:
    """A connection, and the statements that it has prepared."""

    def __init__(self, conn: Any) -> None:
        from psycopg import errors, generators, pq

        self._conn = conn
        self._refused = errors.DataError
        self._cursor = conn.cursor()
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
        # libpq takes a text up to its first NUL.
        if any(b"\0" in each for each in given if each):
            raise self._refused("a NUL character cannot be stored")
        server.send_query_prepared(name, given)
        # The driver's own wait, because it ends when the server does not answer.
        [result] = conn.wait(self._execute(server))
        if result.status != self._ok:
            raise self._failed(result)
        found: bytes | None = result.get_value(0, 0)
        return None if found is None else found.decode()

    def execute(self, text: str) -> None:
        """Run a statement without parameters or rows."""
        self._cursor.execute(text)

    def rows(self, call: Call) -> list[Any]:
        """Run a statement, and return its rows."""
        found: list[Any] = self._cursor.execute(*call, prepare=True).fetchall()
        return found

    def close(self) -> None:
        """Close the connection."""
        self._conn.close()


class DirectCalls:
    """Runs calls, each on a connection that no other thread uses meanwhile."""

    def __init__(self, engine: sa.Engine, lease: float) -> None:
        self._engine = engine
        self._lease = lease
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
        return self._run(lambda session: session.call(text, values))

    def rows(self, call: Call) -> list[Any] | None:
        """Run a statement, which is a transaction, and return its rows; None as `run` does."""
        return self._run(lambda session: session.rows(call))

    def transact(
        self, calls: Sequence[Call], is_right: Callable[[list[list[Any]]], bool]
    ) -> list[list[Any]] | None:
        """Run statements in one transaction, and return the rows of each; None as `run` does.

        Nothing is committed, and None returned, if the rows are not as they should be.
        """

        def act(session: _Session) -> list[list[Any]] | None:
            session.execute("BEGIN")
            found = [session.rows(call) for call in calls]
            session.execute("COMMIT" if (is_well := is_right(found)) else "ROLLBACK")
            return found if is_well else None

        return self._run(act)

    def _run(self, act: Callable[[_Session], R]) -> R | None:
        try:
            self._free.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            return None
        session: _Session | None = None
        try:
            session = self._take()
            found = act(session)
            self._idle.append(session)
        except self._errors.Error as error:
            if session is not None:
                session.close()
            is_wrong = isinstance(error, self._errors.ProgrammingError)
            if is_wrong and error.sqlstate not in _FORGOTTEN:
                raise
            # A connection, a lock, a server that became read-only.
            log.event("database.conflict", level="debug", error=str(error).split("\n")[0])
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
        from quire.store.db import postgres

        given = postgres.connect_args(self._lease)
        # When it connects, not by SET: a pooler would lend the session to others afterwards.
        given["options"] += "".join(f" -c {name}={value}" for name, value in _PLANS.items())
        timeouts = postgres.Timeouts.below(self._lease)
        url = urls.plain_url(self._engine)
        return _Session(postgres.connect(timeouts, url, **given, autocommit=True))
