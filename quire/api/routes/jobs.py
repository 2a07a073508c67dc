"""Jobs: list, submit, show, change, and what happened to them."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from quire.api.auth.authenticate import Reader, Writer
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.responses import Answer, failing, giving, tagged
from quire.api.state import app_state_of
from quire.control import jobs as verbs
from quire.control import queries
from quire.control.explain import job as explaining
from quire.errors import NotFound
from quire.model.access import Viewer
from quire.model.records import Submission

router = APIRouter(prefix="/api/jobs", tags=["jobs"])


@router.get("", summary="List jobs, the latest first", **giving(models.Listed[models.Job]))
def listing(
    request: Request,
    viewer: Reader,
    state: requests.States = None,
    kind: requests.Text = None,
    platform: requests.Text = None,
    account: requests.Text = None,
    user: requests.Text = None,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List the tenant's jobs that match; go on with `next` as `cursor`."""
    page = queries.jobs(
        app_state_of(request).caller(viewer), limit=limit, cursor=cursor, account=account,
        user=user, states=requests.job_states(state), kind=kind, platform=platform,
    )  # fmt: skip
    return Answer(page)


@router.post("", summary="Submit a job", **giving(models.Made, 404, 409, 413, status=201))
def submit(
    request: Request, viewer: Writer, body: requests.Submit, key: requests.Key = None
) -> Response:
    """Make a job; its `Location` says where it is."""
    wish = Submission(
        body.kind,
        body.payload,
        body.priority,
        None if body.run_at is None else body.run_at.timestamp(),
        body.after,
        body.after_failure,
        body.platform,
        body.account,
        cost=body.cost,
        max_attempts=body.max_attempts,
    )
    [job_id] = verbs.submit(app_state_of(request).caller(viewer), [wish], key=key)
    return Answer({"id": job_id}, 201, headers={"Location": f"/api/jobs/{job_id}"})


@router.post("/bulk", summary="Change all jobs that match", **giving(models.Changed, 409))
def bulk(request: Request, viewer: Writer, body: requests.Bulk) -> Response:
    """Apply a verb to every job that matches and whose state allows it; answers how many."""
    wanted = body.filter
    count = verbs.in_bulk(
        app_state_of(request).caller(viewer),
        body.verb,
        states=requests.job_states(wanted.state),
        options={"only_failed": True} if body.verb == "retry" and body.only_failed else {},
        kind=wanted.kind,
        platform=wanted.platform,
        account=wanted.account,
        user=wanted.user,
    )
    return Answer({"verb": body.verb, "count": count})


@router.get("/{job_id}", summary="Show a job", **giving(models.Job, 404))
def show(request: Request, viewer: Reader, job_id: requests.JobId) -> Response:
    """Show a job; with an ETag, so that asking again is cheap."""
    return tagged(request, queries.job(app_state_of(request).caller(viewer), job_id))


@router.delete("/{job_id}", summary="Delete a job", status_code=204, responses=failing(404, 409))
def delete(request: Request, viewer: Writer, job_id: requests.JobId) -> Response:
    """Delete a job that is over, with its history."""
    verbs.one(app_state_of(request).caller(viewer), "delete", job_id)
    return Response(status_code=204)


@router.post("/{job_id}/stop", summary="Stop a job", **giving(models.Job, 404, 409))
def stop(
    request: Request, viewer: Writer, job_id: requests.JobId, body: requests.Why | None = None
) -> Response:
    """Stop a job: finished work is kept, and it can resume."""
    return _act(request, viewer, "stop", job_id, why=body.why if body else None)


@router.post("/{job_id}/resume", summary="Resume a job", **giving(models.Job, 404, 409))
def resume(request: Request, viewer: Writer, job_id: requests.JobId) -> Response:
    """Go on with a stopped or failed job: only what is pending or failed runs."""
    return _act(request, viewer, "resume", job_id)


@router.post("/{job_id}/cancel", summary="Cancel a job", **giving(models.Job, 404, 409))
def cancel(
    request: Request, viewer: Writer, job_id: requests.JobId, body: requests.Why | None = None
) -> Response:
    """Cancel a job for good."""
    return _act(request, viewer, "cancel", job_id, why=body.why if body else None)


@router.post("/{job_id}/retry", summary="Run again what failed", **giving(models.Job, 404, 409))
def retry(
    request: Request, viewer: Writer, job_id: requests.JobId, body: requests.Again | None = None
) -> Response:
    """Run again, with fresh attempts, what did not succeed; only what failed, or only one file."""
    how = body or requests.Again()
    return _act(
        request, viewer, "retry", job_id,
        only_failed=how.only_failed, document_id=how.document_id,
    )  # fmt: skip


@router.post("/{job_id}/priority", summary="Reprioritise a job", **giving(models.Job, 404, 409))
def priority(
    request: Request, viewer: Writer, job_id: requests.JobId, body: requests.Urgency
) -> Response:
    """Give a job another priority, 1 (first) to 10."""
    return _act(request, viewer, "reprioritise", job_id, priority=body.priority)


@router.get("/{job_id}/explain", summary="Explain a job", **giving(models.Explanation, 404))
def explain(
    request: Request,
    viewer: Reader,
    job_id: requests.JobId,
    task: Annotated[int | None, Query(ge=1, le=requests.LARGEST_ID)] = None,
) -> Response:
    """Say what a job, or one task of it, waits for, who holds it, and what happens next."""
    caller = app_state_of(request).caller(viewer)
    answer = explaining.explain_job(caller, job_id)
    if task is not None:
        answer = explaining.explain_task(caller, task)
        if answer["job_id"] != job_id:
            raise NotFound(f"task {task}: no such task in job {job_id}.")
    return Answer(answer)


@router.get(
    "/{job_id}/events",
    summary="List what happened to a job",
    **giving(models.Listed[models.Event], 404),
)
def happened(
    request: Request,
    viewer: Reader,
    job_id: requests.JobId,
    limit: Annotated[int, Query(ge=1, le=queries.LOGGED)] = queries.LOGGED,
    cursor: requests.Cursor = None,
) -> Response:
    """List events, oldest first: the last 3,000, or with a cursor those after it."""
    caller = app_state_of(request).caller(viewer)
    queries.job(caller, job_id)
    return Answer(queries.log(caller, job_id, cursor=cursor, limit=limit))


@router.get(
    "/{job_id}/tasks", summary="List a job's tasks", **giving(models.Listed[models.Task], 404)
)
def tasks(
    request: Request,
    viewer: Reader,
    job_id: requests.JobId,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List the tasks that a job is made of, oldest first."""
    caller = app_state_of(request).caller(viewer)
    queries.job(caller, job_id)
    return Answer(queries.tasks(caller, job_id, limit=limit, cursor=cursor))


@router.get(
    "/{job_id}/attempts", summary="List a job's runs", **giving(models.Listed[models.Attempt], 404)
)
def attempts(
    request: Request,
    viewer: Reader,
    job_id: requests.JobId,
    task_id: Annotated[int | None, Query(ge=1, le=requests.LARGEST_ID)] = None,
    limit: requests.Limit = 100,
) -> Response:
    """List the latest runs of a job's tasks; those of one task by `task_id`."""
    caller = app_state_of(request).caller(viewer)
    queries.job(caller, job_id)
    items = queries.attempts(caller, job_id, task_id=task_id, limit=limit)
    return Answer({"items": items, "next": None})


@router.get(
    "/{job_id}/files", summary="List a job's files", **giving(models.Listed[models.File], 404)
)
def listed_files(
    request: Request,
    viewer: Reader,
    job_id: requests.JobId,
    state: requests.States = None,
    with_errors: bool = False,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List the files of a job, oldest first; of some states, or with page errors."""
    caller = app_state_of(request).caller(viewer)
    queries.job(caller, job_id)
    page = queries.files(
        caller, job_id, states=requests.checked_states(state, queries.FILE_STATES) or (),
        with_errors=with_errors, limit=limit, cursor=cursor,
    )  # fmt: skip
    return Answer(page)


def _act(request: Request, viewer: Viewer, verb: str, job_id: int, **how: Any) -> Response:
    caller = app_state_of(request).caller(viewer)
    verbs.one(caller, verb, job_id, **how)
    return Answer(queries.job(caller, job_id))
