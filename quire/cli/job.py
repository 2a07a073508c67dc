"""`quire job`: shows, explains and changes one job."""

import functools
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire import format
from quire.cli import console, options, session

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table


app = options.Group("Show, explain or change one job.", cls=options.OfIds, no_args_is_help=True)
#: Tasks and runs shown in tables; `--json` has more.
FEW = 20
TRACEBACK_LINES = 20

Watch = Annotated[bool, options.flag("Refresh until the job finishes.", "--watch", "-w")]
Wait = Annotated[
    bool, options.flag("Wait until it finishes. Exits with 1 unless it completed.", "--wait")
]
WaitHere = Annotated[
    bool,
    options.flag(
        "Wait until it finishes. Exits with 1 unless it completed. For an ingest job on the "
        "embedded database, runs a worker if there is none.",
        "--wait",
    ),
]
Why = Annotated[str | None, options.option("TEXT", "Reason, shown with the job.")]
OneFile = Annotated[
    int | None,
    options.option(
        "DOCUMENT",
        "Only this failed file. `quire job show` lists them.",
        "--file",
        parser=options.document_id,
    ),
]


@app.command()
def show(
    job: options.JobId, watch: Watch = False, wait: Wait = False, json: options.Json = False
) -> None:
    """Show a job with its files, tasks and runs."""
    from quire.cli import waiting

    with session.connect() as opened:
        if watch:
            read = functools.partial(opened.whole_job, job)
            console.present(read, _drawn, json=json, watch=True, is_over=waiting.is_over)
        elif wait:
            opened.job(job)
            waiting.until_over(opened, [job], quiet=json)
        one = opened.whole_job(job)
    if json and not watch:
        console.as_json(one)
    elif not watch:
        console.show(_drawn(one))
    if (wait or watch) and format.job_state(one) != "completed":
        raise typer.Exit(1)


@app.command()
def stop(job: options.JobId, why: Why = None) -> None:
    """Stop a job. Finished work is kept, and the job can be resumed."""
    _act("stop", job, why=why)
    console.say(f"job {job} stopped. Continue with: quire job resume {job}")


@app.command()
def resume(job: options.JobId, wait: WaitHere = False) -> None:
    """Continue a stopped or failed job.

    Only unfinished and failed tasks run. Finished work is kept.
    """
    _act("resume", job)
    console.say(f"job {job} resumed.{'' if wait else _follow(job)}")
    _wait(job, wait)


@app.command()
def cancel(job: options.JobId, why: Why = None) -> None:
    """Cancel a job. This is final."""
    _act("cancel", job, why=why)
    console.say(f"job {job} cancelled.")


@app.command()
def retry(
    job: options.JobId,
    failed: Annotated[
        bool, options.flag("Only failed tasks, not cancelled ones.", "--failed")
    ] = False,
    file: OneFile = None,
    wait: WaitHere = False,
) -> None:
    """Retry the failed and cancelled tasks of a job, with fresh attempts."""
    _act("retry", job, only_failed=failed, document_id=file)
    what = f"job {job} retried" if file is None else f"document {file} of job {job} retried"
    console.say(f"{what}.{'' if wait else _follow(job)}")
    _wait(job, wait)


@app.command()
def priority(
    job: options.JobId,
    number: Annotated[int, options.argument("N", "1 (highest) to 10 (lowest).")],
) -> None:
    """Change the priority of a job."""
    _act("reprioritise", job, priority=number)
    console.say(f"job {job} now has priority {number}.")


@app.command()
def delete(job: options.JobId) -> None:
    """Delete a finished job, with its history."""
    _act("delete", job)
    console.say(f"job {job} deleted.")


OneTask = Annotated[int | None, options.option("TASK", "Explain this task of the job.", "--task")]


@app.command()
def explain(job: options.JobId, task: OneTask = None, json: options.Json = False) -> None:
    """Explain what a job or task is waiting for, who runs it, and what happens next."""
    with session.connect() as opened:
        answer = opened.explain(job, task=task)
    if json:
        console.as_json(answer)
        return
    what = f"job {job}" if task is None else f"task {task}"
    console.say(f"{what}: {format.job_state(answer)}.")
    for line in (answer["text"], answer.get("next")):
        if line:
            console.say(format.clean(line))


def _follow(job_id: int) -> str:
    return f" Follow it with: quire job show {job_id} --watch"


def _wait(job_id: int, is_wanted: bool) -> None:
    """Wait for a job that runs again. An ingest job is shown with its files."""
    from quire.cli import waiting
    from quire.cli.ingest import follow

    if not is_wanted:
        return
    with session.connect() as opened:
        # Only the local one has an app.
        if (app := getattr(opened, "app", None)) and opened.job(job_id)["kind"] == "ingest":
            code = follow.to_the_end(app, job_id)
        else:
            ended = waiting.until_over(opened, [job_id])
            console.say(f"{waiting.outcome(ended)}.")
            code = waiting.exit_code(ended)
    raise typer.Exit(code)


def _act(verb: str, job_id: int, **options_of_verb: Any) -> None:
    with session.connect() as opened:
        opened.act(verb, job_id, **options_of_verb)


def _drawn(one: dict[str, Any]) -> "Group":
    from rich.console import Group
    from rich.text import Text

    title = Text(f"job {one['id']}  {format.one_line(one['kind'])}  ", style="bold")
    state = format.job_state(one)
    title.append_text(console.state(state))
    parts: list[RenderableType] = [title, _facts(one)]
    if one["file_list"]["items"]:
        parts += [Text(""), _files(one)]
    tasks, runs = one["task_list"]["items"], one["attempts"]
    if one["files"]:
        shown = one["file_list"]["items"][:FEW]
        tasks, runs = format.beyond_files(tasks, shown), format.beyond_files(runs, shown)
    if tasks:
        parts += [Text(""), _tasks(tasks, sum(one["tasks"].values()) if not one["files"] else 0)]
    if runs:
        parts += [Text(""), _runs(runs)]
    if trace := _trace(one):
        parts += [Text(""), Text("traceback of the last failed run", style="bold"), trace]
    return Group(*parts)


def _facts(one: dict[str, Any]) -> "Table":
    now = time.time()
    lasted = format.job_duration(one)
    limit = f"at most {format.count(one['max_attempts'], 'attempt')} per task"
    ends = f"{format.when(one['finished_at'], now)}{f', after {lasted}' if lasted else ''}"
    facts = {
        "progress": format.job_progress(one) or format.bar(one["progress"]),
        "files": format.job_files(one) if one["files"] else "",
        "message": format.one_line(one["progress_message"]) if one["state"] == "running" else "",
        "estimated end": format.when(one["eta_at"], now) if one["eta_at"] else "",
        "owner": f"{format.one_line(one['owner']['user'])} (tenant {one['owner']['tenant']})",
        "priority": str(one["priority"]),
        "platform": format.one_line(one["platform"]),
        "account": format.one_line(one["account"]),
        "submitted": format.when(one["created_at"], now),
        "starts": format.when(one["run_at"], now) if one["run_at"] else "",
        "started": format.when(one["started_at"], now) if one["started_at"] else "",
        "finished": ends if one["finished_at"] else "",
        one["state"]: format.stopped(one, now).partition(" ")[2] if one["stopped_at"] else "",
        "next attempt": format.when(one["next_attempt_at"], now) if one["next_attempt_at"] else "",
        "retries": f"{one['retry_count']:,} ({limit})" if one["retry_count"] else "",
        "worker": format.one_line(one["worker_id"]),
        "payload": format.short_json(one["payload"]) if one["payload"] else "",
        "result": format.short_json(one["result"]) if one["result"] is not None else "",
        "error" if one["state"] in ("failed", "completed") else "reason": ""
        if one["error"] == one["stopped_why"]
        else format.one_line(one["error"], 1000),
        "actions": ", ".join(f"quire job {verb} {one['id']}" for verb in one["allowed"]),
    }
    return console.facts(facts)


def _files(one: dict[str, Any]) -> "Table":
    items = one["file_list"]["items"][:FEW]
    rows = [
        {
            "DOCUMENT": str(each["document_id"]),
            "FILE": format.one_line(name, 60),
            "STATE": console.state(format.document_state(each)),
            "PAGES": each["pages"],
            "DETAIL": format.file_detail(each),
        }
        for each, name in zip(items, format.distinct_names(items), strict=True)
    ]
    more = sum(one["files"].values()) - len(items)
    return console.table(rows, right=("DOCUMENT", "PAGES"), wide="DETAIL", more=more)


def _tasks(tasks: list[dict[str, Any]], total: int) -> "Table":
    rows = [
        {
            "TASK": str(task["id"]),
            "KIND": format.one_line(task["kind"], 30),
            "STATE": console.state(task["state"]),
            "ATTEMPT": f"{task['attempt']}/{task['max_attempts']}",
            "PROGRESS": format.bar(task["progress"]) if task["state"] == "running" else "",
            "DETAIL": format.one_line(task["error"] or task["message"]) or _waits(task),
        }
        for task in tasks[:FEW]
    ]
    more = max(total - len(rows), 0)
    return console.table(rows, right=("TASK", "ATTEMPT"), wide="DETAIL", more=more)


def _waits(task: dict[str, Any]) -> str:
    waits = f"waiting: {task['reason']}" if task["reason"] else ""
    return f"{waits}, due {format.when(task['due_at'])}" if task["due_at"] else waits


def _runs(attempts: list[dict[str, Any]]) -> "Table":
    rows = [
        {
            "TASK": str(run["task_id"]),
            "ATTEMPT": run["attempt"],
            "OUTCOME": run["outcome"],
            "FINISHED": format.when(run["finished_at"]),
            "TOOK": "" if run["duration"] is None else format.span(run["duration"]),
            "MEMORY": format.size(run["peak_rss"]) if run["peak_rss"] else "",
            "WORKER": format.one_line(run["worker_id"], 40),
            "ERROR": format.one_line(run["error"]),
        }
        for run in attempts[:FEW]
    ]
    right = ("TASK", "ATTEMPT", "TOOK", "MEMORY")
    return console.table(rows, right=right, wide="ERROR", more=max(len(attempts) - FEW, 0))


def _trace(one: dict[str, Any]) -> str:
    if one["state"] != "failed":
        return ""
    for run in one["attempts"]:
        if run["traceback"]:
            lines = format.clean(run["traceback"]).rstrip().split("\n")
            if one["files"] and lines[-1].startswith("quire.errors."):
                return ""  # an unreadable file: its error says everything
            return "\n".join(f"  {line}" for line in lines[-TRACEBACK_LINES:])
    return ""
