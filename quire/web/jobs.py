"""Job pages: the list with filters and bulk actions, and one job."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, Response
from pydantic import BaseModel, Field

from quire import format
from quire.api.auth.authenticate import Reader, Writer
from quire.api.models import requests
from quire.control import jobs as verbs
from quire.control import queries
from quire.control.explain import job as explain_job
from quire.errors import BadInput
from quire.model.states import JobState, parse_states, states_for
from quire.web import page_range_strip
from quire.web.rendering import PageRoute, back, cursor_of, page, with_distinct_names

router = APIRouter(prefix="/jobs", route_class=PageRoute, include_in_schema=False)
PAGE = 50
FILES = TASKS = RUNS = 50
#: Tasks whose attempts are shown: by state, the most relevant first.
LOOKED_AT = 200
TELLING = ("running", "failed", "lost", "ready", "blocked", "cancelled", "skipped", "done")
LINES = 200
VERBS = ("stop", "resume", "retry", "cancel", "delete")
Short = Annotated[str, Field(max_length=200)]


class JobFilters(BaseModel):
    """The filters of the list, which actions on all matching jobs repeat."""

    state: Short = ""
    kind: Short = ""
    user: Short = ""
    platform: Short = ""
    account: Short = ""
    q: Short = ""

    def kept(self) -> dict[str, str]:
        """Return the filters as links and forms repeat them."""
        return {name: getattr(self, name).strip() for name in JobFilters.model_fields}

    def as_query(self) -> dict[str, Any]:
        """Return the filters as a query takes them."""
        plain = {name: value.replace("\0", "") or None for name, value in self.kept().items()}
        plain["text"] = plain.pop("q")
        return {**plain, "states": parse_states([plain.pop("state") or ""], JobState)}


class JobsPage(JobFilters):
    """A page of the list."""

    cursor: Short = ""


class BulkForm(JobFilters):
    """An action on the selected jobs, or on all that match."""

    verb: Short
    scope: Short = "selected"
    to: str = "/jobs"
    sure: Short = ""
    id: list[int] = Field(default_factory=list, max_length=1000)


@router.get("")
def listing(request: Request, caller: Reader, wanted: Annotated[JobsPage, Query()]) -> Response:
    """List jobs, latest first; a search for an ID opens that job."""
    kept = wanted.kept()
    if kept["q"].isdecimal() and queries.find_job(caller, int(kept["q"])):
        return back(f"/jobs/{int(kept['q'])}")
    listed = queries.jobs(caller, limit=PAGE, cursor=cursor_of(wanted.cursor), **wanted.as_query())
    return page(
        request, "jobs.html", jobs=listed["items"], next=listed["next"],
        kept={**kept, "cursor": wanted.cursor}, states=list(JobState),
        is_filtered=any(kept.values()), searched=queries.SEARCHED,
    )  # fmt: skip


@router.post("/bulk")
def bulk(request: Request, caller: Writer, form: Annotated[BulkForm, Form()]) -> Response:
    """Apply an action to many jobs; deleting, and acting on a whole filter, need a confirmation."""
    verb, is_all = form.verb, form.scope == "filter"
    if verb not in VERBS:
        raise BadInput(
            f"jobs: {verb[:40]!r} is not one of {', '.join(VERBS)}. Nothing was changed."
        )
    chosen = sorted(set(form.id))
    if not is_all and not chosen:
        return back(form.to, "none_selected")
    if not form.sure and (verb == "delete" or is_all):
        return _ask(request, form, [] if is_all else chosen)
    if is_all:
        return back(form.to, verb, verbs.in_bulk(caller, verb, **form.as_query()))
    return back(form.to, verb, len(verbs.VERBS[verb](caller, chosen)))


def _ask(request: Request, form: BulkForm, chosen: list[int]) -> Response:
    verb, kept = form.verb, form.kept()
    which = format.count(len(chosen), "job") if chosen else "all jobs that match"
    narrowed = [f"{name} {value}" for name, value in kept.items() if value]
    whole = "" if chosen else f" Filter: {', '.join(narrowed) or 'none, so every job'}."
    said = "The jobs and their history are deleted permanently." if verb == "delete" else ""
    return page(
        request, "confirm.html", question=f"{verb.capitalize()} {which}?",
        consequence=f"Only jobs whose state allows it are affected. {said}{whole}",
        action="/jobs/bulk", answer=f"Yes, {verb}", is_risky=verb == "delete", to=form.to,
        fields=[*kept.items(), *(("id", each) for each in chosen), ("to", form.to),
                ("verb", verb), ("scope", form.scope), ("sure", "yes")],
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
    if listed:
        tasks, runs = format.beyond_files(tasks, listed), format.beyond_files(runs, listed)
    return page(
        request, "job.html", job=job, explained=explained,
        files=with_distinct_names(listed),
        can_reprioritise=job["state"] in states_for("reprioritise"),
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
        consequence=f"The job is {format.job_state(job)}. Its history is deleted permanently. "
        "Documents that it indexed are kept.",
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
