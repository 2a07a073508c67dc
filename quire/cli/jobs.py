"""`quire jobs`, `quire pause` and `quire unpause`: lists jobs, and changes many at once."""

import functools
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire import format
from quire.cli import console, options, session
from quire.errors import BadInput
from quire.model.states import JobState, parse_states

if TYPE_CHECKING:
    from rich.table import Table

app = options.Group("List jobs, or change all that match.")

Watch = Annotated[bool, options.flag("Refresh until Ctrl-C.", "--watch", "-w")]


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
    is_narrow = any(filters.values())
    at: dict[str, Any] = {"limit": options.limit(limit), "cursor": options.cursor(cursor)}
    with session.connect() as opened:
        read = functools.partial(opened.page_of_jobs, state=filters.pop("states"), **at, **filters)
        if watch or json:
            console.present(read, _drawn, json=json, watch=watch)
        else:
            _print(read(), is_narrow)


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
    bool, options.flag("Only failed and lost tasks, not cancelled ones.", "--failed")
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
        "states": parse_states(state, JobState),
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


def _print(page: dict[str, Any], is_narrow: bool) -> None:
    if not page["items"]:
        none_yet = "No jobs yet. Try: quire submit wait --arg seconds=5"
        console.say("No job matches." if is_narrow else none_yet)
        return
    console.show(_drawn(page))
    if page["next"]:
        console.say(f"More: --cursor {page['next']}")


def _drawn(page: dict[str, Any]) -> "Table":
    now = time.time()
    rows = [
        {
            "ID": str(job["id"]),
            "KIND": format.one_line(job["kind"], 30),
            "STATE": console.state(format.job_state(job)),
            "PROGRESS": format.job_progress(job),
            "OWNER": format.one_line(job["owner"]["user"], 20),
            "PRIORITY": job["priority"],
            "AGE": format.age(job["created_at"], now),
            "DETAIL": format.job_detail(job, now),
        }
        for job in page["items"]
    ]
    return console.table(rows, right=("ID", "PRIORITY", "AGE"), wide="DETAIL")


PausedKind = Annotated[str, options.argument("KIND", "Job kind.")]


def pause(kind: PausedKind, plugin: options.Plugins = None) -> None:
    """Pause a job kind. Running tasks finish, no new ones start."""
    from quire.control import jobs

    with session.create_app(plugin) as app:
        changed = jobs.pause(app.caller, kind)
    console.say(
        f"{kind} is paused. Running tasks finish. Continue with: quire unpause {kind}"
        if changed
        else f"{kind} is already paused."
    )


def unpause(kind: PausedKind, plugin: options.Plugins = None) -> None:
    """Unpause a job kind: its tasks start again."""
    from quire.control import jobs

    with session.create_app(plugin) as app:
        changed = jobs.unpause(app.caller, kind)
    console.say(f"{kind} is active again." if changed else f"{kind} is not paused.")
