"""The verbs on tenants: set their limits, and tell what they use of them."""

import time
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from quire.clock import Instant
from quire.control import access, submission_checks
from quire.control.caller import Caller
from quire.errors import BadInput
from quire.store import Connection
from quire.store.db.engine import Database
from quire.store.documents import quotas

LIMITS, DAY = quotas.LIMITS, quotas.DAY
exceeded_requests = quotas.exceeded_requests
#: Seconds for which a process remembers that a tenant has no limit of jobs.
KEEP = 2.0
_without_limit: WeakKeyDictionary[Database, dict[str, float]] = WeakKeyDictionary()
#: The largest limit; more is no limit at all.
LARGEST = 1 << 60


def change(caller: Caller, name: str, limits: Mapping[str, int | None]) -> dict[str, Any]:
    """Set limits of a tenant; None leaves one as it is, and 0 removes it."""
    if not name or len(name) > submission_checks.LONGEST or not name.isprintable():
        raise BadInput(
            f"tenant: expected 1 to {submission_checks.LONGEST} printable characters. Nothing was "
            "changed."
        )
    for what, most in limits.items():
        if most is not None and not 0 <= most <= LARGEST:
            raise BadInput(f"--max-{what}: {most} is not between 0 (no limit) and {LARGEST:,}.")
    given = {f"max_{what}": most or None for what, most in limits.items() if most is not None}

    def act(conn: Connection, now: Instant) -> dict[str, Any]:
        if given:
            quotas.change(conn, name, given)
            access.note(conn, caller, "tenant.changed", name, given, now)
        return quotas.described(conn, name, _day(now))

    _without_limit.pop(caller.db, None)
    return caller.db.write(act)


def listed(caller: Caller) -> list[dict[str, Any]]:
    """List all tenants with their limits and what they use."""
    with caller.db.read() as conn:
        return quotas.listed(conn, _day(caller.db.now(conn)))


def shown(caller: Caller, name: str) -> dict[str, Any]:
    """Describe the limits of one tenant and what it uses."""
    with caller.db.read() as conn:
        return quotas.described(conn, name, _day(caller.db.now(conn)))


def require_jobs(caller: Caller, count: int) -> None:
    """Refuse jobs that would pass the limit of the tenant.

    That a tenant has no limit is remembered for a moment, so that most submissions ask nothing.
    """
    known = _without_limit.setdefault(caller.db, {})
    if time.monotonic() < known.get(caller.tenant, 0.0):
        return
    with caller.db.read() as conn:
        if not quotas.require(conn, caller.tenant, "jobs", count):
            known[caller.tenant] = time.monotonic() + KEEP


def require_room(caller: Caller, size: int) -> None:
    """Refuse files of this size before they are received, if they would pass a limit."""
    with caller.db.read() as conn:
        quotas.require(conn, caller.tenant, "bytes", size)
        quotas.require_room(conn, caller.tenant, "documents")


def max_requests(caller: Caller) -> int | None:
    """Return the limit of the tenant's requests a day."""
    with caller.db.read() as conn:
        return quotas.max_requests(conn, caller.tenant)


def count_requests(caller: Caller, count: int) -> int:
    """Add requests to those of this day; returns their number."""
    return caller.db.write(
        lambda conn, now: quotas.count_requests(conn, caller.tenant, count, _day(now))
    )


def _day(now: Instant) -> int:
    return int(now.wall // quotas.DAY)
