"""`quire jobs`: lists jobs, and stops, resumes, cancels, retries or deletes many at once."""

import functools
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire import format
from quire.cli import console, options, session
from quire.errors import BadInput
from quire.model.states import JobState

if TYPE_CHECKING:
    from rich.table import Table

app = options.Group("List jobs, or change all that match.")

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")]


@app.callback(invoke_without_command=True)
def jobs(
    context: typer.Context,
    state: options.States = None,
    kind: options.Kind = None,
    platform: options.Platform = None,
    account: options.Account = None,
    user: options.User = None,
    limit: options.Limit = 50,
    cursor: options.Cursor = None,
    watch: Watch = False,
    json: options.Json = False,
) -> None:
    """List jobs, newest first, or act on all matching jobs with one of the commands below."""
    filters = _filters(state, kind, platform, account, user)
    if (verb := context.invoked_subcommand) is not None:
        # Ignoring them would make the verb act on more jobs than intended.
        if any(filters.values()) or cursor or watch or json:
            raise BadInput(f"jobs: options go after {verb}, as in `quire jobs {verb} --kind K`.")
        return
    filters.update(limit=options.limit(limit), cursor=options.cursor(cursor))
    with session.connect() as opened:
        if watch or json:
            read = functools.partial(opened.page_of_jobs, **filters)
            console.present(read, _drawn, json=json, watch=watch)
        else:
            _print(opened.page_of_jobs(**filters), filters)


def _act(verb: str, filters: dict[str, Any], yes: bool, **how: Any) -> None:
    """Apply a verb to all matching jobs whose state allows it, after confirmation."""
    from quire.control import jobs as verbs
    from quire.control import queries

    with session.open_app() as opened:
        number = queries.count_jobs(opened.caller, {**filters, "allowing": verb})
        if not number:
            console.say(f"No matching job can be {PAST[verb]}.")
            return
        if not yes:
            _ask(verb, number)
        done = verbs.in_bulk(opened.caller, verb, options=how, **filters)
        console.say(f"{format.count(done, 'job')} {PAST[verb]}.")


def _bulk(verb: str) -> Callable[..., None]:
    def command(
        state: options.States = None,
        kind: options.Kind = None,
        platform: options.Platform = None,
        account: options.Account = None,
        user: options.User = None,
        yes: options.Yes = False,
    ) -> None:
        _act(verb, _filters(state, kind, platform, account, user), yes)

    return command


for _verb, _sentence in {
    "stop": "Stop all matching jobs. They can be resumed.",
    "resume": "Resume all matching jobs that are stopped or failed.",
    "cancel": "Cancel all matching jobs. This is final.",
    "delete": "Delete all matching jobs that have finished, with their history.",
}.items():
    app.command(_verb, help=_sentence)(_bulk(_verb))


Failed = Annotated[
    bool, typer.Option("--failed", help="Only failed and lost tasks, not cancelled ones.")
]
Priority = Annotated[int, options.argument("PRIORITY", "1 (highest) to 10 (lowest).")]


@app.command()
def retry(
    failed: Failed = False,
    state: options.States = None,
    kind: options.Kind = None,
    platform: options.Platform = None,
    account: options.Account = None,
    user: options.User = None,
    yes: options.Yes = False,
) -> None:
    """Retry the failed and cancelled tasks of all matching jobs, and their failed files."""
    _act("retry", _filters(state, kind, platform, account, user), yes, only_failed=failed)


@app.command()
def priority(
    priority: Priority,
    state: options.States = None,
    kind: options.Kind = None,
    platform: options.Platform = None,
    account: options.Account = None,
    user: options.User = None,
    yes: options.Yes = False,
) -> None:
    """Change the priority of all matching jobs."""
    from quire.control import submission_checks

    submission_checks.priority(priority)
    _act("reprioritise", _filters(state, kind, platform, account, user), yes, priority=priority)


PAST = {
    "stop": "stopped", "resume": "resumed", "cancel": "cancelled", "retry": "retried",
    "delete": "deleted", "reprioritise": "given this priority",
}  # fmt: skip


def _filters(
    state: list[str] | None,
    kind: str | None,
    platform: str | None,
    account: str | None,
    user: str | None,
) -> dict[str, Any]:
    return {
        "states": options.states(state, JobState),
        "kind": kind,
        "platform": platform,
        "account": account,
        "user": user,
    }


def _ask(verb: str, number: int) -> None:
    if not sys.stdin.isatty():
        raise BadInput(
            f"jobs {verb}: {format.count(number, 'job')} would be {PAST[verb]}, and there is "
            "no terminal to ask for confirmation. Nothing was changed. Add --yes."
        )
    if not typer.confirm(f"{format.count(number, 'job')} will be {PAST[verb]}. Continue?"):
        console.say("Nothing was changed.")
        raise typer.Exit(1)


def _print(page: dict[str, Any], filters: dict[str, Any]) -> None:
    if not page["items"]:
        narrow = any(filters[name] for name in ("states", "kind", "platform", "account", "user"))
        console.say(
            "No job matches." if narrow else "No jobs yet. Try: quire submit wait --arg seconds=5"
        )
        return
    console.show(_drawn(page))
    if page["next"]:
        console.say(f"More: --cursor {page['next']}")


def _drawn(page: dict[str, Any]) -> "Table":
    from rich.text import Text

    now = time.time()
    drawn = console.table(
        "ID", "KIND", "STATE", "PROGRESS", "OWNER", "PRIORITY", "AGE", "DETAIL",
        right=("ID", "PRIORITY", "AGE"), wide="DETAIL",
    )  # fmt: skip
    for job in page["items"]:
        drawn.add_row(
            str(job["id"]),
            format.one_line(job["kind"], 30),
            Text(state := format.job_state(job), style=console.colour(state)),
            format.job_progress(job),
            format.one_line(job["owner"]["user"], 20),
            str(job["priority"]),
            format.age(job["created_at"], now),
            format.job_detail(job, now),
        )
    return drawn
