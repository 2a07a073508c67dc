"""Refused sources, kinds, grants and roles in the audit log: who tried, from where, and what.

A verb is refused by an exception, which undoes its transaction, so its entry is written after it.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from quire.clock import Instant
from quire.control.caller import Caller
from quire.errors import DatabaseUnavailable, Forbidden, SourceRefused
from quire.store import Connection
from quire.store.access import audit
from quire.url_secrets import masked

Options = ParamSpec("Options")
Result = TypeVar("Result")


def noted(
    action: str,
) -> Callable[
    [Callable[Concatenate[Caller, Options], Result]], Callable[Concatenate[Caller, Options], Result]
]:
    """Write what a verb refuses to a caller into the audit, as `ACTION.refused`."""

    def decorate(
        act: Callable[Concatenate[Caller, Options], Result],
    ) -> Callable[Concatenate[Caller, Options], Result]:
        @wraps(act)
        def run(caller: Caller, /, *args: Options.args, **options: Options.kwargs) -> Result:
            try:
                return act(caller, *args, **options)
            except (Forbidden, SourceRefused) as error:
                _note(caller, f"{action}.refused", error)
                raise

        return run

    return decorate


def _note(caller: Caller, action: str, error: Exception) -> None:
    """Write an entry, unless there are many already: a flood does not fill the table."""
    subject, _, reason = masked(str(error)).partition(": ")
    entry = audit.Refusal(caller.tenant, caller.user, action, subject, reason, caller.address)

    def act(conn: Connection, now: Instant) -> None:
        audit.record_refusal(conn, entry, now=now)

    try:
        with caller.db.read() as conn:
            if audit.has_enough(conn, entry, now=caller.db.now(conn)):
                return
        caller.db.write(act)
    except DatabaseUnavailable:
        return  # the refusal stands without its entry
