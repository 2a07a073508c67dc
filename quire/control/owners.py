"""The verb on owners: change the policy, the weight and the limit of running tasks."""

import math
from typing import Any

from quire.clock import Instant
from quire.control import jobs, submission_checks
from quire.control.caller import Caller
from quire.errors import BadInput
from quire.model.records import Owner
from quire.model.states import Reason
from quire.settings import POLICIES
from quire.store import Connection
from quire.store.db import dialect
from quire.store.queue import owners

#: No policy of its own.
DEFAULT = "default"
HEAVIEST = 1_000_000.0
LARGEST_CAP = 1_000_000


def change(
    caller: Caller,
    user: str,
    *,
    policy: str | None = None,
    weight: float | None = None,
    max_running: int | None = None,
) -> Owner:
    """Change an owner, created if missing; `max_running` 0 removes the limit."""
    values = _checked(user, policy, weight, max_running)

    def act(conn: Connection, now: Instant) -> Owner:
        owner = owners.lock_or_create(conn, caller.tenant, user)
        if values:
            owners.change(conn, owner.id, **values)
        dialect.notify(conn)
        return owners.by_id(conn, owner.id)

    owner = caller.db.write(act)
    if max_running == 0:
        # A claim checks only existing limits, so nothing else would release these tasks.
        jobs.release_blocked(caller, Reason.CAP)
    caller.ring()
    return owner


def _checked(
    user: str, policy: str | None, weight: float | None, max_running: int | None
) -> dict[str, Any]:
    if not user or len(user) > submission_checks.LONGEST or "\0" in user:
        raise BadInput(
            f"user: expected 1 to {submission_checks.LONGEST} characters, got {len(user)}."
        )
    values: dict[str, Any] = {}
    if policy is not None:
        if policy not in (*POLICIES, DEFAULT):
            known = ", ".join((*POLICIES, DEFAULT))
            raise BadInput(f"policy: {policy!r} is not one of {known}. Nothing was changed.")
        values["policy"] = None if policy == DEFAULT else policy
    if weight is not None:
        if not (math.isfinite(weight) and 0 < weight <= HEAVIEST):
            raise BadInput(f"weight: {weight:g} is not above 0 and up to {HEAVIEST:,.0f}.")
        values["weight"] = weight
    if max_running is not None:
        if not 0 <= max_running <= LARGEST_CAP:
            raise BadInput(
                f"max_running: {max_running} is not between 0 (no limit) and {LARGEST_CAP:,}."
            )
        values["max_running"] = max_running or None
    return values
