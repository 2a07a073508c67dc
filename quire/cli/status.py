"""`quire status` and `quire health`: what is running, and whether it is healthy."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire import format
from quire.cli import console, options, session
from quire.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

Watch = Annotated[bool, options.flag("Refresh until Ctrl-C.", "--watch", "-w")]


def status(watch: Watch = False, json: options.Json = False) -> None:
    """Show counts of jobs, tasks and documents, and the workers."""
    if not watch and (found := _read_quickly()) is not None:
        console.present(lambda: found, _drawn, json=json, watch=False)
        return
    with session.connect() as opened:
        console.present(opened.status, _drawn, json=json, watch=watch)


def _read_quickly() -> dict[str, Any] | None:
    """Read a healthy embedded database; None if a server or `App` has to be asked."""
    settings = session.load_settings()
    if settings.url or settings.database_url:
        return None
    from quire.clock import SystemClock
    from quire.control import status as control
    from quire.runtime.worker import liveness

    found = control.read_without_sqlalchemy(
        settings.home / "quire.db",
        settings.tenant,
        now=SystemClock().now(),
        lease=settings.lease_seconds,
        is_alive=liveness.is_alive,
    )
    return found and {"home": str(settings.home), "database": settings.database, **found}


def _drawn(found: dict[str, Any]) -> "Group":
    from rich.console import Group
    from rich.text import Text

    documents: Text | str = "none yet; add some with: quire ingest FOLDER"
    if any(found["documents"].values()):
        documents = _counts(found["documents"])
    paused = ", ".join(format.one_line(kind) for kind in found["paused"])
    broker, workers = found["broker"], found["workers"]
    living = sum(worker["alive"] for worker in workers)
    facts = {
        "home": found["home"] or "known to the operator",
        "database": found["database"],
        "jobs": _counts(found["jobs"]),
        "tasks": _counts(found["tasks"]),
        "documents": documents,
        "paused": f"{paused} (continue with: quire unpause KIND)" if paused else "",
        "broker": broker
        and f"{broker['url']}, {sum(broker['messages_sent'].values()):,} messages sent",
        "problem": "\n".join(format.one_line(each, 1000) for each in found.get("problems", ())),
        "workers": f"{living:,} alive" if workers else "none; start one with: quire up",
    }
    drawn = console.facts(facts, indent="")
    return Group(drawn, Text(""), _workers(workers)) if workers else Group(drawn)


def _counts(numbers: dict[str, int]) -> "Text":
    from rich.text import Text

    parts = [
        Text(f"{number:,} {state.replace('_', ' ')}", style=console.colour(state))
        for state, number in numbers.items()
        if number
    ]
    return Text(", ").join(parts) if parts else Text("none yet")


def _workers(listed: list[dict[str, Any]]) -> "Table":
    now = time.time()
    rows = [
        {
            "WORKER": worker["id"],
            "HOST": format.one_line(worker["host"], 40),
            "PID": str(worker["pid"]),
            "STATE": worker["state"] if worker["alive"] else "dead",
            "RUNNING": worker["running"],
            "STARTED": format.when(worker["started_at"], now),
            "HEARTBEAT": format.when(worker["heartbeat_at"], now),
        }
        for worker in listed
    ]
    return console.table(rows, right=("PID", "RUNNING"))


Role = Annotated[
    str | None, options.argument("ROLE", "api, worker or scheduler. Default: all that run.")
]


def health(role: Role = None, json: options.Json = False) -> None:
    """Check the health of Quire's processes on this machine.

    Exits with 1 if one is unhealthy or none is running. Meant for container health checks.
    """
    from quire.runtime.worker import health as checks

    if role is not None and role not in checks.ROLES:
        raise BadInput(f"role {role!r}: not one of {', '.join(checks.ROLES)}.")
    found = checks.check(session.load_settings(), role)
    if json:
        names = ("role", "healthy", "detail")
        console.as_json({"items": [dict(zip(names, each, strict=True)) for each in found]})
    for each in () if json else found:
        how = "healthy" if each.is_healthy else "UNHEALTHY"
        console.say(f"{each.role}: {how}; {each.detail}")
    if not all(each.is_healthy for each in found):
        raise typer.Exit(1)
