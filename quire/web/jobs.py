"""Job pages: the list with filters and bulk actions, and one job."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, Response

from quire import format
from quire.api.auth.authenticate import Reader, Writer
from quire.api.models import requests
from quire.control import jobs as verbs
from quire.control import queries
from quire.control.explain import job as explain_job
from quire.errors import BadInput
from quire.model.states import JobState
from quire.web import page_range_strip
from quire.web.rendering import PageRoute, back, page, with_distinct_names

router = APIRouter(prefix="/jobs", route_class=PageRoute, include_in_schema=False)
PAGE = 50
FILES = TASKS = RUNS = 50
#: Tasks whose attempts are shown: by state, the most relevant first.
LOOKED_AT = 200
TELLING = ("running", "failed", "lost", "ready", "blocked", "cancelled", "skipped", "done")
LINES = 200
FILTERS = ("state", "kind", "user", "platform", "account", "q")
VERBS = ("stop", "resume", "retry", "cancel", "delete")

Asked = Annotated[str, Query(max_length=200)]
Given = Annotated[str, Form(max_length=200)]


@router.get("")
def listing(
    request: Request,
    caller: Reader,
    state: Asked = "",
    kind: Asked = "",
    user: Asked = "",
    platform: Asked = "",
    account: Asked = "",
    q: Asked = "",
    cursor: Asked = "",
) -> Response:
    """List jobs, latest first; a search for an ID opens that job."""
    kept = {"state": state, "kind": kind, "user": user, "platform": platform, "account": account,
            "q": q.strip(), "cursor": cursor}  # fmt: skip
    if kept["q"].isdecimal() and queries.find_job(caller, _number(q)):
        return back(f"/jobs/{int(q)}")
    listed = queries.jobs(caller, limit=PAGE, cursor=_number(cursor) or None, **_filters(kept))
    return page(
        request, "jobs.html", jobs=listed["items"], next=listed["next"],
        kept=kept, states=list(JobState), is_filtered=any(kept[name] for name in FILTERS),
        searched=queries.SEARCHED,
    )  # fmt: skip


@router.post("/bulk")
def bulk(
    request: Request,
    caller: Writer,
    verb: Given,
    scope: Given = "selected",
    state: Given = "",
    kind: Given = "",
    user: Given = "",
    platform: Given = "",
    account: Given = "",
    q: Given = "",
    to: Annotated[str, Form()] = "/jobs",
    sure: Given = "",
    ids: Annotated[list[int] | None, Form(alias="id", max_length=1000)] = None,
) -> Response:
    """Apply an action to many jobs; deleting, and acting on a whole filter, need a confirmation."""
    if verb not in VERBS:
        raise BadInput(
            f"jobs: {verb[:40]!r} is not one of {', '.join(VERBS)}. Nothing was changed."
        )
    kept = {"state": state, "kind": kind, "user": user, "platform": platform, "account": account,
            "q": q}  # fmt: skip
    chosen = sorted(set(ids or []))
    if scope != "filter" and not chosen:
        return back(to, "none_selected")
    if not sure and (verb == "delete" or scope == "filter"):
        fields = [*kept.items(), *(("id", one) for one in chosen if scope != "filter")]
        return _ask(request, verb, scope, [*fields, ("to", to)], len(chosen))
    if scope == "filter":
        filters = _filters(kept)
        count = verbs.in_bulk(caller, verb, **filters)
    else:
        count = len(verbs.VERBS[verb](caller, chosen))
    return back(to, verb, count)


def _ask(
    request: Request,
    verb: str,
    scope: str,
    fields: list[tuple[str, Any]],
    count: int,
) -> Response:
    which = "all jobs that match" if scope == "filter" else format.count(count, "job")
    narrowed = [f"{k} {v}" for k, v in fields if k in FILTERS and v]
    whole = f" Filter: {', '.join(narrowed) or 'none, so every job'}."
    said = "The jobs and their history are deleted permanently." if verb == "delete" else ""
    return page(
        request, "confirm.html", question=f"{verb.capitalize()} {which}?",
        consequence="Only jobs whose state allows it are affected. " + said
        + (whole if scope == "filter" else ""),
        action="/jobs/bulk", answer=f"Yes, {verb}", is_risky=verb == "delete",
        to=dict(fields).get("to", "/jobs"),
        fields=[*fields, ("verb", verb), ("scope", scope), ("sure", "yes")],
    )  # fmt: skip


@router.get("/{job_id}")
def one(request: Request, caller: Reader, job_id: requests.JobId) -> Response:
    """Show one job."""
    job = queries.job(caller, job_id)
    explained = explain_job.explain_job(caller, job_id)
    listed = queries.files(caller, job_id, worst_first=True, limit=FILES)["items"]
    tasks = queries.tasks_by_state(caller, job_id, TELLING, limit=LOOKED_AT)
    runs = queries.attempts_of_tasks(caller, [task["id"] for task in tasks], limit=RUNS)
    is_huge = sum(job["tasks"].values()) > page_range_strip.MOST
    ranges = [] if is_huge else queries.page_ranges(caller, job_id=job_id)
    begun, ended = format.epoch(job["started_at"]), format.epoch(job["finished_at"])
    if listed:  # beside files, only what is open or went wrong tells something
        tasks = [task for task in tasks if task["state"] not in ("done", "skipped")]
        runs = [run for run in runs if run["outcome"] != "done"]
    return page(
        request, "job.html", job=job, explained=explained,
        files=with_distinct_names(listed),
        can_reprioritise=job["state"] in verbs.states_for("reprioritise"),
        file_total=sum(job["files"].values()), tasks=tasks[:TASKS], attempts=runs,
        log_limit=LINES,
        events=[_line(each) for each in queries.log_tail(caller, job_id, limit=LINES)],
        took=ended - begun if begun and ended else None,
        reused=format.reuse(queries.reuse(caller, job_id)) if job["files"] else "",
        **(page_range_strip.counted(job["tasks"]) if is_huge else page_range_strip.shown(ranges)),
    )  # fmt: skip


@router.get("/{job_id}/delete")
def ask_to_delete(request: Request, caller: Writer, job_id: requests.JobId) -> Response:
    """Ask for confirmation before deleting a job."""
    job = queries.job(caller, job_id)
    return page(
        request, "confirm.html", question=f"Delete job {job_id}?",
        consequence=f"The job is {job['state']}. Its history is deleted permanently. Documents "
        "that it indexed are kept.",
        action=f"/jobs/{job_id}/delete", answer="Yes, delete", is_risky=True,
        to=f"/jobs/{job_id}", fields=[("to", "/jobs")],
    )  # fmt: skip


@router.post("/{job_id}/{verb}")
def act(
    caller: Writer,
    job_id: requests.JobId,
    verb: str,
    to: Annotated[str, Form()] = "",
    document: Annotated[int | None, Form()] = None,
    priority: Annotated[int | None, Form()] = None,
) -> Response:
    """Apply an action to one job."""
    known = (*VERBS, "priority")
    if verb not in known:
        raise BadInput(
            f"jobs: {verb[:40]!r} is not one of {', '.join(known)}. Nothing was changed."
        )
    how: dict[str, Any] = {"document_id": document} if verb == "retry" and document else {}
    if verb == "priority":
        how["priority"] = priority
    meant = "reprioritise" if verb == "priority" else verb
    verbs.one(caller, meant, job_id, **how)
    return back(to or f"/jobs/{job_id}", "retry_file" if "document_id" in how else verb)


def _filters(kept: dict[str, str]) -> dict[str, Any]:
    """Return the filters of a query."""
    plain = {name: kept[name].replace("\0", "") or None for name in FILTERS[1:5]}
    states = requests.checked_states([kept["state"]], JobState)
    return {"states": states, "text": kept["q"].replace("\0", "").strip() or None, **plain}


def _number(text: str) -> int:
    return min(int(text), 2**63 - 1) if text.isascii() and text.isdecimal() else 0


def _line(event: dict[str, Any]) -> dict[str, Any]:
    """Add the text of an event."""
    told = {k: v for k, v in event.items() if k not in ("id", "at", "job_id", "task_id", "name")}
    message = told.pop("message", None) or ""
    if isinstance(fraction := told.pop("fraction", None), float | int):
        message = f"{fraction * 100:.0f} % {message}"
    task = [f"task {event['task_id']}"] if event.get("task_id") else []
    rest = [f"{name} {value}" for name, value in told.items() if value is not None]
    at = format.epoch(event["at"])
    exact = datetime.fromtimestamp(at or 0.0, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    text = " · ".join(str(part) for part in (*task, message.strip(), *rest) if part)
    return {**event, "words": text, "exact": exact}
