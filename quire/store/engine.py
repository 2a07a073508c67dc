"""Opens the database and its transactions; turns driver errors into Quire's.

A write transaction on SQLite begins IMMEDIATE: a deferred one that upgrades is refused at once,
whatever the busy timeout says. Waiting writers retry every half millisecond, so that an old waiter
does not lose to new ones, as it does with SQLite's own growing delays.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from quire import log
from quire.clock import Clock, Instant, SystemClock
from quire.errors import DatabaseUnavailable
from quire.store import dialect, embedded

R = TypeVar("R")

#: How long a transaction waits for SQLite's write lock before it reports the database as locked.
BUSY_SECONDS = 10.0
#: A lease where nobody says otherwise.
LEASE_SECONDS = 60.0
#: Tries of a transaction that PostgreSQL ended to break a deadlock or a serialization conflict.
CONFLICT_TRIES = 8
#: A pooled connection that lay idle for longer is tried before it is used.
STALE_SECONDS = 1.0
_CONFLICTS = {"40001", "40P01"}

_POSTGRES_ARGS = {
    # All below the lease: a session that cannot be reached must not hold locks for longer.
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "quire",
}


def _session_options(lease: float) -> str:
    """Let a session that stalls in a transaction end before those who wait for it lose a lease."""
    idle = max(min(10.0, lease / 6), 1.0)
    wait = max(min(15.0, lease / 4), 1.5)
    return (
        f"-c idle_in_transaction_session_timeout={idle:.3f}s -c lock_timeout={wait:.3f}s "
        f"-c statement_timeout=30s -c plan_cache_mode=force_custom_plan -c jit=off"
    )


class Database:
    """An open database. `begin` and `read` give a connection; `write` retries conflicts."""

    def __init__(self, url: str, engine: sa.Engine, clock: Clock, path: Path | None) -> None:
        self.url = url
        self.engine = engine
        self.clock = clock
        self.path = path
        self.lease_seconds = LEASE_SECONDS

    @classmethod
    def open(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        synchronous: str = "full",
        lease_seconds: float = LEASE_SECONDS,
    ) -> "Database":
        """Open `sqlite:///path` or `postgresql://…`; nothing is created before `migrate`."""
        if url.startswith("sqlite"):
            path = Path(url.removeprefix("sqlite:///"))
            engine = embedded.make_engine(path, synchronous)
            database = cls(url, engine, clock or SystemClock(), path)
            database.lease_seconds = lease_seconds
            return database
        engine = sa.create_engine(
            dialect.driver_url(url),
            pool_size=2,
            max_overflow=8,
            connect_args={**_POSTGRES_ARGS, "options": _session_options(lease_seconds)},
        )
        _ping_when_stale(engine)
        database = cls(url, engine, clock or SystemClock(), None)
        database.lease_seconds = lease_seconds
        return database

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def migrate(self, **how: Any) -> list[int]:
        """Bring the schema up to date as `migrate.migrate` does; returns the versions applied."""
        from quire.store import migrate

        return migrate.migrate(self, **how)

    def now(self, conn: sa.Connection) -> Instant:
        """Read the clock that this database goes by."""
        return dialect.now(conn, self.clock)

    @contextlib.contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """Open a write transaction: committed at the end of the block, else rolled back."""
        with self._translated(), self._connected() as conn:
            if self.path is not None:
                lease = self.lease_seconds
                patience = min(BUSY_SECONDS, lease / 4)
                embedded.begin_immediate(conn, self.path, patience, longest=lease / 2)
            with embedded.noted(self.path), conn.begin():
                yield conn

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a transaction that only reads: one snapshot, no lock."""
        with self._translated(), self._connected() as conn, conn.begin():
            dialect.keep_snapshot(conn)
            yield conn

    def write(self, act: Callable[[sa.Connection, Instant], R]) -> R:
        """Run `act` in a write transaction, again where the database broke a deadlock."""
        for attempt in range(1, CONFLICT_TRIES + 1):
            try:
                with self.begin() as conn:
                    return act(conn, self.now(conn))
            except sa.exc.DBAPIError as error:
                if not _is_conflict(error) or attempt == CONFLICT_TRIES:
                    raise
                log.event("database.conflict", level="debug", attempt=attempt)
                time.sleep(random.uniform(0, 0.005 * 2**attempt))  # noqa: S311
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        with self.engine.connect() as conn:
            yield conn

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            reason = _unavailable(error)
            if reason is None:
                raise
            if error.connection_invalidated or self.path is not None:
                self.engine.dispose()
            raise DatabaseUnavailable(
                f"database {self._name()}: {reason}. Nothing was lost; it is tried again."
            ) from error

    def _name(self) -> str:
        return str(self.path) if self.path else str(self.engine.url.render_as_string())


def _ping_when_stale(engine: sa.Engine) -> None:
    """Try a pooled connection before use if it lay idle: a ping each time costs a round trip."""

    @sa.event.listens_for(engine, "checkin")
    def stamp(driver: Any, record: Any) -> None:
        record.info["idle_since"] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def ping(driver: Any, record: Any, proxy: Any) -> None:
        if time.monotonic() - record.info.get("idle_since", time.monotonic()) < STALE_SECONDS:
            return
        try:
            driver.execute("SELECT 1")
            driver.rollback()
        except Exception as error:
            # The pool then opens a fresh connection and tries again.
            raise sa.exc.DisconnectionError from error


def _is_conflict(error: sa.exc.DBAPIError) -> bool:
    if getattr(error.orig, "sqlstate", None) in _CONFLICTS:
        return True
    # Two claims started two jobs of one exclusive key at the same instant: the second looks again.
    broken = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
    return broken in ("uq_jobs_exclusive", "uq_tasks_exclusive")


_SQLITE_TROUBLE = (
    "locked",
    "readonly",
    "read-only",
    "disk is full",
    "disk I/O",
    "unable to open",
    "deleted",
    "malformed",
    "not a database",
)


def _unavailable(error: sa.exc.DBAPIError) -> str | None:
    """Say why the database itself is in trouble, or None where the statement was."""
    first = str(error.orig).strip().split("\n", 1)[0]
    # A refused row names its constraint, and `ck_tasks_blocked` has "locked" in it.
    if isinstance(error, sa.exc.IntegrityError | sa.exc.DataError | sa.exc.ProgrammingError):
        return None
    if getattr(error.orig, "sqlstate", None) in _CONFLICTS:
        return None
    state: Any = getattr(error.orig, "sqlstate", None)
    # 08 connection, 53 resources, 57 operator intervention, 58 system error, 25006 read-only
    # (a demoted primary), 55P03 lock timeout.
    if state is not None and (state[:2] in ("08", "53", "57", "58") or state in ("25006", "55P03")):
        return first
    if error.connection_invalidated:
        return first
    if isinstance(error, sa.exc.OperationalError) and hasattr(error.orig, "sqlstate"):
        return first if state is None else None
    return first if any(word in first for word in _SQLITE_TROUBLE) else None
