"""Waits for an ingest job, runs a worker for it if there is none, and prints the result."""

import contextlib
from typing import Any

import typer

from quire import format
from quire.app import App
from quire.cli import console
from quire.cli.ingest import files_view, own_worker
from quire.control import jobs, queries
from quire.control.ingest import IngestRequest

#: Files that are listed; `--json` and `quire job show` have more.
FEW = 20
MOST = 1000
INTERRUPTED = 130


def to_the_end(
    app: App, job_id: int, *, json: bool = False, request: IngestRequest | None = None
) -> int:
    """Follow a job until it finishes and print the result; returns the exit code."""
    with contextlib.ExitStack() as stack:
        is_ours = False
        try:
            is_ours = app.db.is_embedded and not queries.any_worker_alive(app.caller)
            if is_ours and request is not None:
                own_worker.list_unchanged(app, request)
            job = queries.job(app.caller, job_id)
            if job["finished_at"] is None:
                worker = stack.enter_context(own_worker.if_needed(app))
                job = files_view.follow(app, job_id, worker.check, quiet=json)
        except KeyboardInterrupt:
            _leave(app, job_id, is_ours=is_ours)
            raise typer.Exit(INTERRUPTED) from None
    if json:
        console.as_json(ending(app, job))
    else:
        say_ending(app, job)
    has_failed = job["failed_files"] or (job["result"] or {}).get("failed_before")
    return 0 if job["state"] == "completed" and not has_failed else 1


def _leave(app: App, job_id: int, *, is_ours: bool) -> None:
    """Print what happens to a job after Ctrl-C."""
    if is_ours:
        jobs.stop(app.caller, [job_id], why="Ctrl-C")
        console.note(f"\njob {job_id} stopped. Finished files are kept. "
                     f"Continue with: quire job resume {job_id} --wait")  # fmt: skip
        return
    console.note(f"\njob {job_id} keeps running. Follow it with: quire job show {job_id} --watch; "
                 f"stop it with: quire job stop {job_id}")  # fmt: skip


def ending(app: App, job: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a job as JSON."""
    names = ("id", "state", "files", "files_with_errors", "result", "error")
    return {
        **{name: job[name] for name in names},
        "reused": queries.reuse(app.caller, job["id"]),
        "failed": queries.files(app.caller, job["id"], limit=MOST, states=("failed",))["items"],
    }


def say_ending(app: App, job: dict[str, Any]) -> None:
    """Print the result of a job: counts, reuse, and each failure with its reason."""
    took = format.job_duration(job)
    console.say(f"job {job['id']} {format.job_state(job)}{f' after {took}' if took else ''}.")
    for count, noun in _counts(job):
        console.say(f"  {count:>8,}  {noun}")
    _say_listing(job["result"] or {})
    if reused := format.reuse(queries.reuse(app.caller, job["id"])):
        console.say(f"Reused: {reused}")
    _say_files(app, job, "Failed (document, reason):", states=("failed",))
    if job["files_with_errors"]:
        _say_files(app, job, "Pages that could not be read:", with_errors=True, states=("success",))
    if job["error"] and not job["files"].get("failed") and not _unlisted(job):
        console.say(f"error: {format.one_line(job['error'], 400)}")
    _say_next(app, job)


def _counts(job: dict[str, Any]) -> list[tuple[int, str]]:
    """Count the files by result, including those that needed no work."""
    files, listed = job["files"], job["result"] or {}
    good = files.get("success", 0) - job["files_with_errors"]
    unlisted = len(listed.get("unlisted", ()))
    found = [
        (good, "indexed"),
        (job["files_with_errors"], "indexed with errors: some pages could not be read"),
        (files.get("failed", 0), "failed"),
        (files.get("cancelled", 0), "cancelled"),
        (files.get("pending", 0) + files.get("indexing", 0), "not finished"),
        (listed.get("unchanged", 0), "unchanged since they were indexed"),
        (listed.get("failed_before", 0), "failed before and unchanged: not tried again"),
        (listed.get("waiting", 0) + listed.get("running", 0), "already queued"),
        (listed.get("gone", 0), "gone from the source"),
        (listed.get("left_out", 0), "skipped: not regular files, or not readable"),
        (unlisted, f"source{'' if unlisted == 1 else 's'} could not be listed"),
    ]
    shown = [each for each in found if each[0]]
    return shown or [(0, "files found")]


def _unlisted(job: dict[str, Any]) -> list[dict[str, str]]:
    return (job["result"] or {}).get("unlisted", [])  # type: ignore[no-any-return]


def _say_listing(listed: dict[str, Any]) -> None:
    """Print what the listing could not read or skipped."""
    for pattern in listed.get("unmatched", ()):
        console.say(f"No file matched: {format.one_line(pattern, 100)}")
    sections = {
        "Skipped:": [
            f"{format.one_line(each['uri'], 300)}: {format.one_line(each['reason'])}"
            for each in listed.get("left_out_first", ())
        ],
        "Could not be listed:": [
            format.one_line(each["error"], 400) for each in listed.get("unlisted", ())[:FEW]
        ],
    }
    for title, lines in sections.items():
        if lines:
            console.say()
            console.say(title)
        for line in lines:
            console.say(f"  {line}")


def _say_files(app: App, job: dict[str, Any], title: str, **which: Any) -> None:
    page = queries.files(app.caller, job["id"], limit=FEW, **which)
    if not page["items"]:
        return
    console.say()
    console.say(title)
    for each, known in zip(page["items"], format.distinct_names(page["items"]), strict=True):
        name = format.one_line(known, 60)
        # The name is the subject of the error.
        reason = format.one_line((each["error"] or "").removeprefix(f"{each['name']}: "), 400)
        if each["state"] == "success":
            reason = f"{format.count(each['page_errors'], 'page')} of {each['pages']:,}"
        console.say(f"  {each['document_id']:>8}  {name}: {reason}")
    if page["next"]:
        console.say(f"More: quire job show {job['id']}")


def _say_next(app: App, job: dict[str, Any]) -> None:
    if job["files"].get("failed") or _unlisted(job):
        console.say()
        console.say(f"Retry the failed ones with: quire job retry {job['id']} --failed --wait")
    if (job["result"] or {}).get("failed_before"):
        console.say()
        console.say("Try the files that failed before with: quire ingest --retry-failed SOURCE")
    held = (job["result"] or {}).get("waiting", 0) + (job["result"] or {}).get("running", 0)
    if held and (sources := job["payload"].get("sources")):
        found = queries.files_held_by_other_jobs(app.caller, job["id"], sources)
        for each in found[:5]:
            console.say(
                f"job {each['job_id']} has {each['files']:,} of these files; see: "
                f"quire job explain {each['job_id']}"
            )
