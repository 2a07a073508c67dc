"""Opens the database and its transactions; translates driver errors.

Write transactions on SQLite begin IMMEDIATE: a deferred one that upgrades fails at once, whatever
the busy timeout. Waiting writers retry every half millisecond, because SQLite's own growing delays
let new writers overtake old ones.
"""

import contextlib
import itertools
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import sqlalchemy as sa

from quire import log
from quire.clock import Clock, Instant, SystemClock
from quire.errors import BadInput, DatabaseUnavailable, Unconfirmed, install_hint
from quire.model.records import EndedTask
from quire.store.db import dialect, sqlite, transfer_markers, urls
from quire.store.db.direct_calls import Call, DirectCalls
from quire.store.db.group_commit import GroupCommit

R = TypeVar("R")

#: How long a transaction waits for SQLite's write lock.
BUSY_SECONDS = 10.0
#: Default lease.
LEASE_SECONDS = 60.0
#: How long a transaction that is in conflict with others is started over, and the longest pause.
#: By time, not by tries: on a busy machine the others need longer too.
CONFLICT_SECONDS, LONGEST_PAUSE = 5.0, 0.25
#: Tries of a transaction whose connection was lost before COMMIT.
LOST_CONNECTION_TRIES = 3
#: Pauses before an idempotent change is repeated after a COMMIT without a reply.
UNCONFIRMED_WAITS = (0.0, 0.2, 0.5, 1.0)
_CONFLICTS = {"40001", "40P01"}


class TransactionConflict(DatabaseUnavailable):
    """The transaction lost against another: a deadlock, or a lock out of order. `write` retries."""


class OnEnded(Protocol):
    """What the ends of tasks and jobs mean outside the queue: called in the same transaction."""

    def lock(self, conn: sa.Connection, task_ids: Sequence[int]) -> None:
        """Lock what the unsuccessful ends of tasks will change, before their jobs are locked."""
        ...

    def tasks_ended(self, conn: sa.Connection, ended: Sequence[EndedTask], *, now: Instant) -> None:
        """Follow tasks that work on documents into their final states."""
        ...

    def is_partly_done(self, job_id: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
        """Return the condition that the failed tasks of a job are files among ones that made it."""
        ...

    def jobs_deleted(
        self, conn: sa.Connection, job_ids: Sequence[int], *, now: Instant, limit: int
    ) -> int:
        """Undo what deleted jobs had begun, and forget the jobs; returns how many rows changed."""
        ...


def on_ended(conn: sa.Connection | sa.Engine) -> OnEnded:
    """Return what the database of this connection was opened with."""
    return cast(OnEnded, conn.get_execution_options()["on_ended"])


class Database:
    """An open database. `begin` and `read` yield a connection; `write` retries conflicts."""

    def __init__(
        self,
        url: str,
        engine: sa.Engine,
        clock: Clock,
        path: Path | None,
        lease_seconds: float,
        on_ended: OnEnded,
    ) -> None:
        self.url = url
        self.engine = engine
        self.clock = clock
        self.path = path
        self.lease_seconds = lease_seconds
        # Functions of the queue take only a connection: it carries what they have to call.
        engine.update_execution_options(on_ended=on_ended)
        self._group = GroupCommit(engine, path) if path else None
        self._calls = None if path else DirectCalls(engine, lease_seconds)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        on_ended: OnEnded,
        clock: Clock | None = None,
        synchronous: str = "full",
        lease_seconds: float = LEASE_SECONDS,
    ) -> "Database":
        """Open `sqlite:///path` or `postgresql://…`; nothing is created before `migrate`.

        `quire.store.open_database` calls this with the hooks of the document store.
        """
        clock = clock or SystemClock()
        if url.startswith("sqlite"):
            path = Path(url.removeprefix("sqlite:///"))
            engine = sqlite.make_engine(path, synchronous)
            return cls(url, engine, clock, path, lease_seconds, on_ended)
        try:
            from quire.store.db import postgres
        except ImportError as error:
            raise BadInput(
                "QUIRE_DATABASE_URL: PostgreSQL needs psycopg, which cannot be loaded "
                f"({str(error).splitlines()[0]}). Install it with "
                f"`{install_hint('postgres')}`, or unset QUIRE_DATABASE_URL."
            ) from error
        engine = postgres.make_engine(url, lease_seconds)
        return cls(url, engine, clock, None, lease_seconds, on_ended)

    @property
    def is_embedded(self) -> bool:
        """Whether this is an SQLite file, used by one machine and created on demand."""
        return self.path is not None

    @property
    def stems_words(self) -> bool:
        """Whether the full-text index stems words itself, as FTS5's porter tokenizer does."""
        return self.is_embedded

    def exists(self) -> bool:
        """Whether the file of an embedded database exists; always true for a server."""
        return self.path is None or self.path.exists()

    def close(self) -> None:
        """Close every connection."""
        if self._group is not None:
            self._group.close()
        if self._calls is not None:
            self._calls.close()
        self.engine.dispose()

    def migrate(self, **how: Any) -> list[int]:
        """Migrate the schema, see `migrate.migrate`; returns the versions applied."""
        from quire.store.db import migrate

        return migrate.migrate(self, **how)

    def now(self, conn: sa.Connection) -> Instant:
        """Read the clock of this database: the server's, or this machine's on SQLite."""
        return dialect.now(conn, self.clock)

    @property
    def _lock_limits(self) -> dict[str, float]:
        """How long to wait for SQLite's write lock, and how long another may hold it."""
        lease = self.lease_seconds
        return {"timeout": min(BUSY_SECONDS, lease / 4), "max_hold": lease / 2}

    @contextlib.contextmanager
    def begin(self, *, is_long: bool = False) -> Iterator[sa.Connection]:
        """Open a write transaction: committed at the end of the block, else rolled back.

        On SQLite, processes that wait for the write lock kill its holder after half a lease,
        unless its transaction is said to be long.
        """
        with self._translate_errors(), self.engine.connect() as conn:
            if self.path is not None:
                sqlite.begin_immediate(conn, self.path, **self._lock_limits)
            conn.info.pop("highest_job", None)
            with sqlite.record_writer(self.path, is_long=is_long), conn.begin():
                yield conn

    @contextlib.contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Open a read-only transaction: one snapshot, no lock."""
        with self._translate_errors(), contextlib.ExitStack() as stack:
            yield self._begin_read(stack)

    def write(
        self, act: Callable[[sa.Connection, Instant], R], *, is_idempotent: bool = False
    ) -> R:
        """Run `act` in a write transaction; retried after deadlocks and lost connections.

        If the reply to COMMIT is lost, the change may have been made: this raises `Unconfirmed`,
        or repeats an `act` that is idempotent.
        """
        unconfirmed: Unconfirmed | None = None
        for wait in UNCONFIRMED_WAITS:
            if wait:
                time.sleep(wait)
            try:
                return self._write(act)
            except DatabaseUnavailable as error:
                # Once a try is unconfirmed, a later failure does not undo it.
                unconfirmed = error if isinstance(error, Unconfirmed) else unconfirmed
                if unconfirmed is None or not is_idempotent or wait == UNCONFIRMED_WAITS[-1]:
                    raise unconfirmed or error from error.__cause__
        raise AssertionError("unreachable")

    def write_grouped(self, act: Callable[[Any], R]) -> R | None:
        """Run a short `act` with a cursor of SQLite, in a transaction that threads may share.

        It must not raise after its first write. Returns None if the database failed; nothing was
        committed then.
        """
        try:
            return self._group.run(act, **self._lock_limits) if self._group else None
        except (self.engine.dialect.loaded_dbapi.Error, sqlite.FileReplaced) as error:
            log.event("database.conflict", level="debug", error=str(error))
            return None

    def call(self, text: str, values: Sequence[Any]) -> str | None:
        """Call a PostgreSQL procedure that commits, in one round trip; returns its first result.

        Returns None if the database or the connection failed, whatever was committed.
        """
        return self._calls.run(text, values) if self._calls else None

    def truncate_log(self) -> None:
        """Empty the write-ahead log into the file (SQLite), unless somebody reads meanwhile."""
        if self.path is not None:
            with self._translate_errors(), self.engine.connect() as conn:
                conn.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()

    @property
    def has_calls(self) -> bool:
        """Whether statements are round trips, so that `call_rows` and `transact` save some."""
        return self._calls is not None

    def call_rows(self, call: Call) -> list[Any] | None:
        """Run a statement of PostgreSQL, which is a transaction, in one round trip.

        Returns None if the database or the connection failed, whatever was committed.
        """
        return self._calls.rows(call) if self._calls else None

    def transact(
        self, calls: Sequence[Call], is_right: Callable[[list[list[Any]]], bool]
    ) -> list[list[Any]] | None:
        """Run statements of PostgreSQL in one transaction, which commits if the rows are right.

        Returns None if they are not, or as `call_rows` does.
        """
        return self._calls.transact(calls, is_right) if self._calls else None

    def _write(self, act: Callable[[sa.Connection, Instant], R]) -> R:
        give_up_at = time.monotonic() + CONFLICT_SECONDS
        for attempt in itertools.count(1):
            is_committing = False
            try:
                with self.begin() as conn:
                    made = act(conn, self.now(conn))
                    is_committing = True
                return made
            except (TransactionConflict, sa.exc.IntegrityError) as error:
                if not _is_conflict(error) or time.monotonic() > give_up_at:
                    raise
                log.event("database.conflict", level="debug", attempt=attempt)
                longest = min(0.005 * 2 ** min(attempt, 10), LONGEST_PAUSE)
                time.sleep(random.uniform(0, longest))  # noqa: S311
            except DatabaseUnavailable as error:
                lost = error.__cause__
                if is_committing and _is_lost(lost):
                    raise Unconfirmed(
                        f"{str(error).partition('. ')[0]}, while a change was committed: it may "
                        "have happened. Look before you ask for it again."
                    ) from error
                # Nothing was committed: retry on a fresh connection.
                if not _is_lost_early(lost) or attempt >= LOST_CONNECTION_TRIES:
                    raise
        raise AssertionError("unreachable")

    def _begin_read(self, stack: contextlib.ExitStack) -> sa.Connection:
        """Begin a read; the first statement detects a pooled connection that died."""
        for attempt in range(1, LOST_CONNECTION_TRIES + 1):
            try:
                with contextlib.ExitStack() as opened:
                    conn = opened.enter_context(self.engine.connect())
                    opened.enter_context(conn.begin())
                    dialect.use_snapshot(conn)
                    stack.enter_context(opened.pop_all())
                    return conn
            except sa.exc.DBAPIError as error:
                if not _is_lost_early(error) or attempt == LOST_CONNECTION_TRIES:
                    raise
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        driver_error: type[Exception] = self.engine.dialect.loaded_dbapi.Error
        try:
            yield
        except driver_error as error:
            # The driver was called directly, so SQLAlchemy did not wrap its error.
            wrap: Any = sa.exc.DBAPIError.instance
            wrapped = wrap("", None, error, driver_error, dialect=self.engine.dialect)
            raise self._translated(wrapped) from error
        except sa.exc.DBAPIError as error:
            if (translated := self._translated(error)) is error:
                raise
            raise translated from error

    def _translated(self, error: sa.exc.DBAPIError) -> Exception:
        if refusal := transfer_markers.refused_write(error):
            return refusal
        if getattr(error.orig, "sqlstate", None) in _CONFLICTS:
            return TransactionConflict(
                "database: the transaction was in conflict with another one and was rolled back"
            )
        reason = _unavailable(error)
        if reason is None:
            return error
        if error.connection_invalidated or self.path is not None:
            self.engine.dispose()
        name = self.path or urls.without_password(self.url)
        return DatabaseUnavailable(f"database {name}: {reason}. {sqlite.NOTHING_LOST}")


def _is_conflict(error: TransactionConflict | sa.exc.IntegrityError) -> bool:
    if isinstance(error, TransactionConflict):
        return True
    # Two claims started jobs of one exclusive key at the same time, or two requests used one
    # idempotency key: the second is retried.
    broken = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
    return broken in ("uq_jobs_exclusive", "uq_tasks_exclusive", "submissions_pkey")


def _is_lost(error: BaseException | None) -> bool:
    """Tell whether this error closed the connection."""
    return isinstance(error, sa.exc.DBAPIError) and error.connection_invalidated


def _is_lost_early(error: BaseException | None) -> bool:
    """Tell whether the connection was lost without a timeout, so that a retry has time left."""
    orig = getattr(error, "orig", None)
    return _is_lost(error) and type(orig).__name__ != "AnswerTimeout"


#: psycopg's line for each host that it tried.
_HOST_TRIED = re.compile(r"^- host: '?(.*?)'?, port: '?(.*?)'?, .*: (.+)$", re.MULTILINE)
_SQLITE_UNAVAILABLE = (
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
    """Return why the database is unavailable, or None if the statement was wrong."""
    text = str(error.orig).strip()
    tried = (f"{host}:{port}: {why}" for host, port, why in _HOST_TRIED.findall(text))
    first = "; ".join(tried) or text.split("\n", 1)[0]
    # A constraint error names its constraint, and `ck_tasks_blocked` contains "locked".
    if isinstance(error, sa.exc.IntegrityError | sa.exc.DataError | sa.exc.ProgrammingError):
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
    return first if any(word in first for word in _SQLITE_UNAVAILABLE) else None
