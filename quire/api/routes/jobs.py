"""Jobs: list, submit, show, change; their tasks, attempts, files and events."""

from typing import Annotated, Any

from fastapi import Query, Request, Response

from quire.api.auth.authenticate import CorpusReader, CorpusWriter, Reader, Writer
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.responses import ApiResponse, Router, with_etag
from quire.control import jobs as verbs
from quire.control import queries
from quire.control.caller import Caller
from quire.control.explain import job as explaining
from quire.model.records import Submission
from quire.model.states import JobState, parse_states

router = Router(prefix="/api/jobs", tags=["jobs"])


@router.on("GET", "", "List jobs", models.ListOf[models.Job])
def listing(
    caller: Reader,
    state: requests.States = None,
    kind: requests.Text = None,
    platform: requests.Text = None,
    account: requests.Text = None,
    user: requests.Text = None,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List the jobs that match, latest first."""
    page = queries.jobs(
        caller, limit=limit, cursor=cursor, account=account,
        user=user, states=parse_states(state, JobState), kind=kind, platform=platform,
    )  # fmt: skip
    return ApiResponse(page)


@router.on("POST", "", "Submit a job", models.Created, 404, 409, 413, status=201)
def submit(caller: CorpusWriter, body: requests.Submit, key: requests.Key = None) -> Response:
    """Submit a job; `Location` is its URL."""
    run_at = None if body.run_at is None else body.run_at.timestamp()
    submission = Submission(**{**dict(body), "run_at": run_at})
    [job_id] = verbs.submit(caller, [submission], key=key)
    return ApiResponse({"id": job_id}, 201, headers={"Location": f"/api/jobs/{job_id}"})


@router.on("POST", "/bulk", "Change all jobs that match", models.Changed, 409)
def bulk(caller: Writer, body: requests.Bulk) -> Response:
    """Apply an action to every job that matches and whose state allows it."""
    filters = dict(body.filter)
    states = parse_states(filters.pop("state"), JobState)
    options = {"only_failed": True} if body.verb == "retry" and body.only_failed else {}
    count = verbs.in_bulk(caller, body.verb, states=states, options=options, **filters)
    return ApiResponse({"verb": body.verb, "count": count})


@router.on("GET", "/{job_id}", "Show a job", models.Job, 404)
def show(request: Request, caller: CorpusReader, job_id: requests.JobId) -> Response:
    """Show a job. The ETag makes polling cheap."""
    return with_etag(request, queries.job(caller, job_id))


@router.on("DELETE", "/{job_id}", "Delete a job", None, 404, 409, status=204)
def delete(caller: Writer, job_id: requests.JobId) -> Response:
    """Delete a job that has ended, with its history."""
    verbs.one(caller, "delete", job_id)
    return Response(status_code=204)


@router.on("POST", "/{job_id}/stop", "Stop a job", models.Job, 404, 409)
def stop(
    caller: Writer, job_id: requests.JobId, body: requests.StopReason | None = None
) -> Response:
    """Stop a job. Finished work is kept, and the job can be resumed."""
    return _act(caller, "stop", job_id, why=body.why if body else None)


@router.on("POST", "/{job_id}/resume", "Resume a job", models.Job, 404, 409)
def resume(caller: Writer, job_id: requests.JobId) -> Response:
    """Resume a stopped or failed job: only pending and failed tasks run."""
    return _act(caller, "resume", job_id)


@router.on("POST", "/{job_id}/cancel", "Cancel a job", models.Job, 404, 409)
def cancel(
    caller: Writer, job_id: requests.JobId, body: requests.StopReason | None = None
) -> Response:
    """Cancel a job permanently."""
    return _act(caller, "cancel", job_id, why=body.why if body else None)


@router.on("POST", "/{job_id}/retry", "Retry a job", models.Job, 404, 409)
def retry(
    caller: Writer, job_id: requests.JobId, body: requests.RetryOptions | None = None
) -> Response:
    """Run unsuccessful tasks again with new attempts; all, only failed ones, or one file."""
    how = body or requests.RetryOptions()
    return _act(
        caller, "retry", job_id,
        only_failed=how.only_failed, document_id=how.document_id,
    )  # fmt: skip


@router.on("POST", "/{job_id}/priority", "Change the priority of a job", models.Job, 404, 409)
def priority(caller: Writer, job_id: requests.JobId, body: requests.NewPriority) -> Response:
    """Change the priority of a job, 1 (highest) to 10 (lowest)."""
    return _act(caller, "reprioritise", job_id, priority=body.priority)


@router.on("GET", "/{job_id}/explain", "Explain a job", models.Explanation, 404)
def explain(
    caller: Reader,
    job_id: requests.JobId,
    task: Annotated[int | None, Query(ge=1, le=requests.LARGEST_ID)] = None,
) -> Response:
    """Explain what a job or one of its tasks waits for, and what happens next."""
    return ApiResponse(explaining.explain_job(caller, job_id, task_id=task))


@router.on("GET", "/{job_id}/events", "List a job's events", models.ListOf[models.Event], 404)
def events(
    caller: CorpusReader,
    job_id: requests.JobId,
    limit: Annotated[int, Query(ge=1, le=queries.LOGGED)] = queries.LOGGED,
    cursor: requests.Cursor = None,
) -> Response:
    """List events, oldest first: the last 3,000, or those after a cursor."""
    queries.job(caller, job_id)
    return ApiResponse(queries.log(caller, job_id, cursor=cursor, limit=limit))


@router.on("GET", "/{job_id}/tasks", "List a job's tasks", models.ListOf[models.Task], 404)
def tasks(
    caller: Reader,
    job_id: requests.JobId,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List the tasks of a job, oldest first."""
    queries.job(caller, job_id)
    return ApiResponse(queries.tasks(caller, job_id, limit=limit, cursor=cursor))


@router.on("GET", "/{job_id}/attempts", "List a job's attempts", models.ListOf[models.Attempt], 404)
def attempts(
    caller: Reader,
    job_id: requests.JobId,
    task_id: Annotated[int | None, Query(ge=1, le=requests.LARGEST_ID)] = None,
    limit: requests.Limit = 100,
) -> Response:
    """List the latest attempts of a job's tasks, or of one task."""
    queries.job(caller, job_id)
    items = queries.attempts(caller, job_id, task_id=task_id, limit=limit)
    return ApiResponse({"items": items, "next": None})


@router.on("GET", "/{job_id}/files", "List a job's files", models.ListOf[models.File], 404)
def listed_files(
    caller: CorpusReader,
    job_id: requests.JobId,
    state: requests.States = None,
    with_errors: bool = False,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List the files of a job, oldest first; by state, or only those with page errors."""
    queries.job(caller, job_id)
    page = queries.files(
        caller, job_id, states=parse_states(state, queries.FILE_STATES) or (),
        with_errors=with_errors, limit=limit, cursor=cursor,
    )  # fmt: skip
    return ApiResponse(page)


def _act(caller: Caller, verb: str, job_id: int, **how: Any) -> Response:
    verbs.one(caller, verb, job_id, **how)
    return ApiResponse(queries.job(caller, job_id))
