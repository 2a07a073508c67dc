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

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")]


def status(watch: Watch = False, json: options.Json = False) -> None:
    """Show counts of jobs, tasks and documents, and the workers."""
    with session.connect() as opened:
        console.present(opened.status, _drawn, json=json, watch=watch)


def _drawn(found: dict[str, Any]) -> "Group":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    facts.add_row("home", found["home"])
    facts.add_row("database", found["database"])
    facts.add_row("jobs", _counts(found["jobs"]))
    facts.add_row("tasks", _counts(found["tasks"]))
    is_empty = not any(found["documents"].values())
    begin = "none yet; add some with: quire ingest FOLDER"
    facts.add_row("documents", begin if is_empty else _counts(found["documents"]))
    if found["paused"]:
        names = ", ".join(format.one_line(kind) for kind in found["paused"])
        facts.add_row("paused", f"{names} (continue with: quire unpause KIND)")
    if broker := found["broker"]:
        sent = sum(broker["messages_sent"].values())
        facts.add_row("broker", f"{broker['url']}, {sent:,} messages sent")
    for problem in found.get("problems", ()):
        facts.add_row("problem", format.one_line(problem, 1000))
    if not found["workers"]:
        facts.add_row("workers", "none; start one with: quire up")
        return Group(facts)
    living = sum(worker["alive"] for worker in found["workers"])
    facts.add_row("workers", f"{living:,} alive")
    return Group(facts, Text(""), _workers(found["workers"]))


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
    drawn = console.table(
        "WORKER", "HOST", "PID", "STATE", "RUNNING", "STARTED", "HEARTBEAT",
        right=("PID", "RUNNING"),
    )  # fmt: skip
    for worker in listed:
        drawn.add_row(
            worker["id"],
            format.one_line(worker["host"], 40),
            str(worker["pid"]),
            worker["state"] if worker["alive"] else "dead",
            f"{worker['running']:,}",
            format.when(worker["started_at"], now),
            format.when(worker["heartbeat_at"], now),
        )
    return drawn


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
