"""PostgreSQL connections that end: no wait for the server, and no lock for it, is without limit.

A server may be gone without a word, or there and silent (a stopped process, a proxy that swallows
answers). The kernel notices the first, nobody but us the second: it acknowledges what it gets.
"""

import time
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen

from quire.store.db import urls

R = TypeVar("R")

#: A pooled connection that lay idle for longer is tried before it is used.
STALE_SECONDS = 1.0
#: What a server answers to a write that is a standby, or was made read-only.
READ_ONLY = "25006"
#: The first version that can limit a whole transaction.
_LIMITS_TRANSACTIONS = 170_000


class Timeouts(NamedTuple):
    """Seconds after which something is given up, all below the lease that they must not outlast."""

    connect: int
    #: One statement, on the server; the client waits a little longer for its answer.
    statement: float
    #: A session that waits for the rest of its transaction: its client is frozen or cut off, and
    #: holds row locks that a sweep needs to take its tasks back.
    idle: float
    #: Waiting for a row that such a session holds; longer than `idle`, so that it is outlived.
    lock: float
    #: A whole transaction, whatever it does.
    transaction: float
    #: Bytes that the other side's kernel does not acknowledge.
    unheard: float
    #: Silence between two probes of a connection that is not used.
    keepalive: int

    @classmethod
    def below(cls, lease: float) -> "Timeouts":
        """Choose limits for a lease; those of a minute or longer get the greatest."""
        return cls(
            connect=int(_between(2, lease / 6, 5)),
            statement=_between(5, lease / 2, 30),
            idle=_between(1, lease / 6, 10),
            lock=_between(1.5, lease / 4, 15),
            transaction=_between(6, lease * 0.75, 45),
            unheard=_between(2, lease / 3, 20),
            keepalive=int(_between(1, lease / 12, 5)),
        )

    @property
    def answer(self) -> float:
        """How long the client waits for one answer."""
        return self.statement + max(self.statement / 6, 1.0)


class AnswerTimeout(psycopg.OperationalError):
    """The server did not answer in time; the connection is closed."""


class TimedConnection(psycopg.Connection[Any]):
    """A connection that is closed when an answer does not come within `patience`."""

    patience = 35.0

    def __del__(self, *_: Any) -> None:
        """Say nothing: a pool that is given up forgets what is just being returned to it.

        libpq's side closes itself, and only in the process that opened it: not in a fork of it.
        """

    def wait(self, gen: PQGen[R], interval: float = 0.1, timeout: float | None = None) -> R:
        """Wait for an answer, but not for ever."""
        return super().wait(self._limited(gen), interval, timeout)

    def can_write(self) -> bool:
        """Ask the server whether it is, or is still, one that can be written to."""
        return self.execute("SHOW transaction_read_only").fetchone() == ("off",)

    def _limited(self, gen: PQGen[R]) -> Generator[Any, Any, R]:
        end = time.monotonic() + self.patience
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() >= end:
                    self.pgconn.finish()
                    raise AnswerTimeout(f"the server did not answer within {self.patience:g} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            answer: R = done.value
            return answer


def connect_args(lease: float) -> dict[str, Any]:
    """Return what a connection is opened with."""
    limits = Timeouts.below(lease)
    return {
        "connect_timeout": limits.connect,
        "keepalives_idle": 2 * limits.keepalive,
        "keepalives_interval": limits.keepalive,
        "keepalives_count": 3,
        "tcp_user_timeout": int(limits.unheard * 1000),
        "application_name": "quire",
        "options": " ".join(f"-c {name}={value}" for name, value in _session(limits).items()),
    }


def _session(limits: Timeouts) -> dict[str, str]:
    return {
        "statement_timeout": f"{limits.statement:.3f}s",
        "idle_in_transaction_session_timeout": f"{limits.idle:.3f}s",
        "lock_timeout": f"{limits.lock:.3f}s",
        # The server's own ends: a host that vanished must not keep its sessions for two hours.
        "tcp_keepalives_idle": f"{2 * limits.keepalive}",
        "tcp_keepalives_interval": f"{limits.keepalive}",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": f"{int(limits.unheard * 1000)}",
        "plan_cache_mode": "force_custom_plan",
        "jit": "off",
    }


def make_engine(url: str, lease: float) -> sa.Engine:
    """Build an engine of such connections; stale ones are found before they are used."""
    engine = sa.create_engine(
        urls.driver_url(url), pool_size=2, max_overflow=8, connect_args=connect_args(lease)
    )
    limits = Timeouts.below(lease)
    watch = _PoolEvents(limits)
    sa.event.listen(
        engine, "do_connect", lambda _, record, args, given: connect(limits, *args, **given)
    )
    sa.event.listen(engine, "handle_error", _give_up_if_demoted)
    sa.event.listen(engine, "connect", watch.connected)
    sa.event.listen(engine, "checkout", watch.taken)
    sa.event.listen(engine, "checkin", watch.returned)
    sa.event.listen(engine, "engine_disposed", watch.disposed)
    return engine


class _PoolEvents:
    """Looks after pooled connections: those that may be dead, and those whose pool is gone."""

    def __init__(self, limits: Timeouts) -> None:
        self._limits = limits
        self._disposals = 0

    def connected(self, driver: Any, record: Any) -> None:
        """Note to which pool a connection belongs."""
        record.info["disposals"] = self._disposals

    def disposed(self, engine: Any) -> None:
        """Note that the pool was given up; what is in use comes back to it all the same."""
        self._disposals += 1

    def taken(self, driver: Any, record: Any, proxy: Any) -> None:
        """Try a connection that lay idle. Not each time: it costs a round trip."""
        if time.monotonic() - record.info.get("idle_since", time.monotonic()) < STALE_SECONDS:
            return
        try:
            can_write = driver.can_write()
            driver.rollback()
        except Exception as error:
            # The pool then opens a fresh connection and tries again.
            raise sa.exc.DisconnectionError from error
        if not can_write:
            raise sa.exc.DisconnectionError

    def returned(self, driver: Any, record: Any) -> None:
        """Make it ready for the next; one that nobody will take out again is closed."""
        record.info["idle_since"] = time.monotonic()
        if driver is None:
            return
        driver.patience = self._limits.answer
        if record.info.get("disposals") != self._disposals:
            driver.close()


def _give_up_if_demoted(failed: sa.ExceptionContext) -> None:
    """Treat a server that cannot be written to any more as one that is gone; another may be it."""
    if getattr(failed.original_exception, "sqlstate", None) == READ_ONLY:
        failed.is_disconnect = True


def connect(limits: Timeouts, *args: Any, **given: Any) -> TimedConnection:
    """Open a connection under these limits."""
    link: TimedConnection = TimedConnection.connect(*args, **given)
    link.patience = limits.answer
    try:
        if link.info.server_version >= _LIMITS_TRANSACTIONS:
            link.execute(f"SET transaction_timeout = '{limits.transaction:.3f}s'")
            if not link.autocommit:
                link.commit()
    except BaseException:
        link.close()
        raise
    return link


def _between(least: float, wanted: float, most: float) -> float:
    return max(min(wanted, most), least)
