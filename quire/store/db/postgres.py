"""PostgreSQL connections with a timeout on every wait and every lock.

A server may vanish without closing its connections, or accept data and never answer (a stopped
process, a proxy that drops replies). TCP keepalive detects the first, only a client-side timeout
the second.
"""

import functools
import time
import weakref
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen

from quire.store.db import urls

R = TypeVar("R")

#: Pooled connections idle for longer are probed before use.
STALE_SECONDS = 1.0
#: SQLSTATE of a write to a standby or a server made read-only.
READ_ONLY = "25006"
#: First version with `transaction_timeout`.
_HAS_TRANSACTION_TIMEOUT = 170_000


class Timeouts(NamedTuple):
    """Timeouts in seconds, all shorter than the lease."""

    connect: int
    #: One statement, on the server; the client waits a little longer for the result.
    statement: float
    #: Idle in transaction: a frozen or disconnected client would keep the row locks that the
    #: sweep needs to reclaim its tasks.
    idle: float
    #: Waiting for a row lock; longer than `idle`, so that a frozen session ends first.
    lock: float
    #: A whole transaction.
    transaction: float
    #: Sent data without a TCP acknowledgement.
    unacknowledged: float
    #: Between two probes of an idle connection.
    keepalive: int

    @classmethod
    def below(cls, lease: float) -> "Timeouts":
        """Choose timeouts for a lease; they stop growing at a lease of one minute."""
        return cls(
            connect=int(_clamp(2, lease / 6, 5)),
            statement=_clamp(5, lease / 2, 30),
            idle=_clamp(1, lease / 6, 10),
            lock=_clamp(1.5, lease / 4, 15),
            transaction=_clamp(6, lease * 0.75, 45),
            unacknowledged=_clamp(2, lease / 3, 20),
            keepalive=int(_clamp(1, lease / 12, 5)),
        )

    @property
    def answer(self) -> float:
        """How long the client waits for one result."""
        return self.statement + max(self.statement / 6, 1.0)


class AnswerTimeout(psycopg.OperationalError):
    """The server did not answer in time; the connection was closed."""


class NotReplicated(psycopg.OperationalError):
    """A commit was cancelled while it waited for a synchronous standby; the connection was closed.

    It has happened on the primary, and PostgreSQL only warns. A timeout of the statement is enough,
    if that is the call of a procedure that commits.
    """


def _noticed(of: "weakref.ref[TimedConnection]", notice: psycopg.errors.Diagnostic) -> None:
    # By the name of the routine: the message is in the language of the server.
    if (conn := of()) is not None and notice.source_function == "SyncRepWaitForLSN":
        conn.is_replicated = False


class TimedConnection(psycopg.Connection[Any]):
    """A connection that closes itself if a result does not arrive within `answer_timeout`.

    It also does if what is committed may not be on the standby that should have it.
    """

    answer_timeout = 35.0
    is_replicated = True

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        # A connection that holds itself would stay open until the garbage collector runs.
        self.add_notice_handler(functools.partial(_noticed, weakref.ref(self)))

    def __del__(self, *_: Any) -> None:
        """Suppress psycopg's warning: a disposed pool drops connections that are being returned.

        libpq closes the socket itself, only in the process that opened it, not in a fork.
        """

    def wait(self, gen: PQGen[R], interval: float = 0.1, timeout: float | None = None) -> R:
        """Wait for a result with a timeout."""
        return super().wait(self._with_timeout(gen), interval, timeout)

    def can_write(self) -> bool:
        """Ask the server whether it is writable."""
        return self.execute("SHOW transaction_read_only").fetchone() == ("off",)

    def _with_timeout(self, gen: PQGen[R]) -> Generator[Any, Any, R]:
        end = time.monotonic() + self.answer_timeout
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() >= end:
                    self.pgconn.finish()
                    raise AnswerTimeout(
                        f"the server did not answer within {self.answer_timeout:g} s"
                    )
                wanted = gen.send(ready)
        except StopIteration as done:
            if not self.is_replicated:
                self.pgconn.finish()
                raise NotReplicated("the wait for the synchronous standby was cancelled") from None
            answer: R = done.value
            return answer


def connect_args(lease: float) -> dict[str, Any]:
    """Return the keyword arguments of a connection."""
    timeouts = Timeouts.below(lease)
    session = {
        "statement_timeout": f"{timeouts.statement:.3f}s",
        "idle_in_transaction_session_timeout": f"{timeouts.idle:.3f}s",
        "lock_timeout": f"{timeouts.lock:.3f}s",
        # On the server's side: a vanished client must not keep its session for two hours.
        "tcp_keepalives_idle": f"{2 * timeouts.keepalive}",
        "tcp_keepalives_interval": f"{timeouts.keepalive}",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": f"{int(timeouts.unacknowledged * 1000)}",
        "plan_cache_mode": "force_custom_plan",
        "jit": "off",
    }
    return {
        "connect_timeout": timeouts.connect,
        "keepalives_idle": 2 * timeouts.keepalive,
        "keepalives_interval": timeouts.keepalive,
        "keepalives_count": 3,
        "tcp_user_timeout": int(timeouts.unacknowledged * 1000),
        "application_name": "quire",
        # Whatever the environment or the database says: `direct_calls` encodes texts itself.
        "client_encoding": "UTF8",
        "options": " ".join(f"-c {name}={value}" for name, value in session.items()),
    }


def make_engine(url: str, lease: float) -> sa.Engine:
    """Create an engine that probes stale connections before use."""
    engine = sa.create_engine(
        urls.driver_url(url), pool_size=2, max_overflow=8, connect_args=connect_args(lease)
    )
    timeouts = Timeouts.below(lease)
    pool_events = _PoolEvents(timeouts)
    sa.event.listen(
        engine, "do_connect", lambda _, record, args, given: connect(timeouts, *args, **given)
    )
    sa.event.listen(engine, "handle_error", _disconnect_if_read_only)
    sa.event.listen(engine, "connect", pool_events.connected)
    sa.event.listen(engine, "checkout", pool_events.checked_out)
    sa.event.listen(engine, "checkin", pool_events.checked_in)
    sa.event.listen(engine, "engine_disposed", pool_events.disposed)
    return engine


class _PoolEvents:
    """Pool events: probes stale connections and closes those of a disposed pool."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._disposals = 0

    def connected(self, driver: Any, record: Any) -> None:
        """Record to which pool a connection belongs."""
        record.info["disposals"] = self._disposals

    def disposed(self, engine: Any) -> None:
        """Count disposals; connections in use are still returned afterwards."""
        self._disposals += 1

    def checked_out(self, driver: Any, record: Any, proxy: Any) -> None:
        """Probe a connection that was idle; not every time, as it costs a round trip."""
        if time.monotonic() - record.info.get("idle_since", time.monotonic()) < STALE_SECONDS:
            return
        try:
            can_write = driver.can_write()
            driver.rollback()
        except Exception as error:
            # The pool then opens a new connection.
            raise sa.exc.DisconnectionError from error
        if not can_write:
            raise sa.exc.DisconnectionError

    def checked_in(self, driver: Any, record: Any) -> None:
        """Reset a returned connection; close it if its pool was disposed."""
        record.info["idle_since"] = time.monotonic()
        if driver is None:
            return
        driver.answer_timeout = self._timeouts.answer
        if record.info.get("disposals") != self._disposals:
            driver.close()


def _disconnect_if_read_only(failed: sa.ExceptionContext) -> None:
    """Drop connections to a server that became read-only: another may be primary now."""
    if getattr(failed.original_exception, "sqlstate", None) == READ_ONLY:
        failed.is_disconnect = True


def connect(timeouts: Timeouts, *args: Any, **given: Any) -> TimedConnection:
    """Open a connection with these timeouts."""
    conn: TimedConnection = TimedConnection.connect(*args, **given)
    conn.answer_timeout = timeouts.answer
    try:
        if conn.info.server_version >= _HAS_TRANSACTION_TIMEOUT:
            conn.execute(f"SET transaction_timeout = '{timeouts.transaction:.3f}s'")
            if not conn.autocommit:
                conn.commit()
    except BaseException:
        conn.close()
        raise
    return conn


def _clamp(least: float, wanted: float, most: float) -> float:
    return max(min(wanted, most), least)
