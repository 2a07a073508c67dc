"""The verbs on source grants, and the check of the sources of a job that comes over the API."""

from collections.abc import Sequence
from typing import Any

from quire.clock import Instant
from quire.control.access import note
from quire.control.caller import Caller, query, verb
from quire.control.refusals import noted
from quire.errors import BadInput, NotFound
from quire.model.places import Type, place_of, place_to_grant
from quire.store import Connection
from quire.store.access import source_grants


@noted("source.allow")
@verb
def allow(caller: Caller, conn: Connection, now: Instant, text: str) -> dict[str, Any]:
    """Let the users of the tenant ingest a place and everything below it."""
    from quire.fetch.permission import require_grantable

    place = require_grantable(text, caller.settings).text
    if source_grants.add(conn, caller.tenant, place, caller.user, now=now):
        note(conn, caller, "source.allow", place, None, now)
    return _shown(conn, caller, place)


@verb
def revoke(caller: Caller, conn: Connection, now: Instant, text: str) -> dict[str, Any]:
    """Take a grant back: workers open nothing there any more, also for jobs that are queued."""
    try:
        place = place_to_grant(text).text
    except BadInput:
        place = text
    known = source_grants.of_tenant(conn, caller.tenant)
    if place not in known:
        shown = ", ".join(known) or "none"
        raise NotFound(
            f"source {text[:200]}: is not granted to the tenant {caller.tenant} (granted: "
            f"{shown}). `quire source list` lists the grants."
        )
    found = _shown(conn, caller, place)
    source_grants.remove(conn, caller.tenant, place)
    note(conn, caller, "source.revoke", place, None, now)
    return found


list_grants = query(source_grants.list_all)


def grants_of_all(caller: Caller) -> list[dict[str, Any]]:
    """List the grants of every tenant, for who operates the installation."""
    with caller.db.read() as conn:
        return source_grants.list_all(conn, None)


def require_granted(caller: Caller, sources: Sequence[str]) -> None:
    """Raise Forbidden for a source that the caller's tenant may not use."""
    from quire.fetch.permission import require_grant

    if all(place_of(each).type is Type.HOST for each in sources):
        return  # the worker judges the address of the host
    with caller.db.read() as conn:
        grants = source_grants.of_tenant(conn, caller.tenant)
    for each in sources:
        require_grant(each, grants, caller.settings)


def _shown(conn: Connection, caller: Caller, place: str) -> dict[str, Any]:
    found = source_grants.list_all(conn, caller.tenant)
    return next(each for each in found if each["place"] == place)
