"""Everything that CLI, API and dashboard show, assembled once; the three only render it.

Each query takes a `Caller` and returns what its tenant may see, as plain JSON-like values. Nothing
here writes. Documents' contents (pages, chunks, bytes) are in `document_content`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from quire.clock import iso, json_values
from quire.control import outages
from quire.control import status as statuses
from quire.control.caller import Caller, query
from quire.errors import NotFound
from quire.model.records import WorkerRow
from quire.model.states import JobState
from quire.store import Connection
from quire.store.db import dialect
from quire.store.documents import corpora
from quire.store.queue import events, metric_counters
from quire.store.queue import kinds as kind_rows
from quire.store.queue import owners as owner_rows
from quire.store.queue import workers as worker_rows
from quire.store.reports import counters, dashboard, substring_filter
from quire.store.reports import documents as document_reports
from quire.store.reports import files as file_reports
from quire.store.reports import jobs as job_reports
from quire.store.reports import tasks as task_reports

Json = dict[str, Any]
#: States of a file in its job.
FILE_STATES = file_reports.STATES
#: Events of a job that are listed without a cursor.
LOGGED = events.SHOWN
#: Latest jobs or documents among which a substring is searched.
SEARCHED = substring_filter.SEARCHED
#: Page ranges that are listed one by one.
MOST_RANGES = dashboard.CELLS
Run = dashboard.Run


def status(caller: Caller) -> Json:
    """Count by state, and list workers and problems."""
    return {**counts(caller), **health(caller)}


def counts(caller: Caller) -> Json:
    """Count jobs, tasks and documents by state, and list paused kinds; slow with many jobs."""
    with caller.db.read() as conn:
        return statuses.counts(dialect.runner(conn), caller.tenant)


def health(caller: Caller) -> Json:
    """List workers, the state of the broker, and what keeps tasks from running."""
    with caller.db.read() as conn:
        now, lease = caller.db.now(conn), caller.db.lease_seconds
        return {
            "workers": _workers(conn, caller),
            "broker": outages.broker_state(conn, now=now, max_silence=lease),
            "problems": outages.listed(conn, caller.tenant, now=now, max_silence=lease),
        }


class Metrics(NamedTuple):
    """What is counted for Prometheus at one moment."""

    tasks: dict[tuple[str, str], int]
    oldest: dict[str, float]
    runs: dict[tuple[str, str], tuple[int, float]]
    work: dict[str, int]
    bytes_kept: int
    alive: int
    refused: int


def metrics(caller: Caller) -> Metrics:
    """Count a tenant's tasks, runs and work; `refused` counts those of all tenants."""
    tenant, lease = caller.tenant, caller.db.lease_seconds
    with caller.db.read() as conn:
        now = caller.db.now(conn).wall
        living = worker_rows.live(conn)
        ready_since = counters.waiting_since(conn, tenant)
        counted = Metrics(
            counters.tasks_by_kind(conn, tenant),
            {kind: max(now - since, 0.0) for kind, since in ready_since.items()},
            counters.runs(conn, tenant),
            counters.work(conn, tenant),
            counters.bytes_kept(conn, tenant),
            0,
            metric_counters.read(conn).get("refused", 0),
        )
    alive = sum(caller.is_alive(row, now=now, lease=lease) for row in living)
    return counted._replace(alive=alive)


def workers(caller: Caller) -> list[Json]:
    """List the workers that have not ended, with how many of the tenant's tasks each runs."""
    with caller.db.read() as conn:
        return _workers(conn, caller)


def live_worker_rows(caller: Caller) -> list[WorkerRow]:
    """Return the records of the workers that have not ended, with their process ids."""
    with caller.db.read() as conn:
        return worker_rows.live(conn)


def any_worker_alive(caller: Caller) -> bool:
    """Tell whether at least one worker is alive."""
    return any(worker["alive"] for worker in workers(caller))


def kinds(caller: Caller) -> list[Json]:
    """List the kinds of jobs that workers have announced."""
    with caller.db.read() as conn:
        rows = kind_rows.by_name(conn).values()
    names = ("name", "queue", "max_attempts", "at_most_once", "paused_at")
    return [json_values(row, names) for row in rows]


def jobs(caller: Caller, *, limit: int = 50, cursor: int | None = None, **filters: Any) -> Json:
    """List jobs, latest first, with the cursor of the next page."""
    with caller.db.read() as conn:
        now = caller.db.now(conn).wall
        return job_reports.page_of_jobs(
            conn, caller.tenant, now=now, limit=limit, cursor=cursor, **filters
        )


def overview(caller: Caller, *, running: int, groups: int) -> Json:
    """Return what runs and what waits, up to a number of jobs and groups, and who works."""
    with caller.db.read() as conn:
        at = caller.db.now(conn)
        active = job_reports.page_of_jobs(
            conn, caller.tenant, now=at.wall, limit=running, states=[JobState.RUNNING]
        )["items"]
        queued = dashboard.waiting(conn, caller.tenant, explained=groups)
        workers = _workers(conn, caller)
        return {
            "running": active,
            "running_count": dashboard.active(conn, caller.tenant)
            if len(active) == running
            else len(active),
            "waiting": queued[:groups],
            "waiting_jobs": sum(one.jobs for one in queued),
            "waiting_is_all": all(one.is_all for one in queued),
            "workers": workers,
            "alive": sum(worker["alive"] for worker in workers),
            "problems": outages.listed(
                conn, caller.tenant, now=at, max_silence=caller.db.lease_seconds
            ),
            "is_new": not dashboard.has_owners(conn, caller.tenant),
        }


def recent_runs(caller: Caller, *, seconds: float) -> tuple[Sequence[Run], float | None, float]:
    """List the latest attempts; also since when all of them are known, and the time."""
    with caller.db.read() as conn:
        now = caller.db.now(conn).wall
        return *dashboard.recent_runs(conn, caller.tenant, since=now - seconds), now


def running_jobs(caller: Caller) -> list[Json]:
    """List running jobs in the order in which they started."""
    with caller.db.read() as conn:
        return job_reports.running(conn, caller.tenant, now=caller.db.now(conn).wall)


def count_jobs(caller: Caller, filters: Mapping[str, Any]) -> int:
    """Count the jobs that match."""
    count, last = 0, 0
    while True:
        with caller.db.read() as conn:
            ids = job_reports.ids_of_jobs(conn, caller.tenant, after_id=last, limit=5000, **filters)
        if not ids:
            return count
        count, last = count + len(ids), ids[-1]


def last_job_id(caller: Caller) -> int:
    """Return the id of the latest job of any tenant; 0 without any."""
    with caller.db.read() as conn:
        return job_reports.last_job_id(conn)


def find_job(caller: Caller, job_id: int) -> Json | None:
    """Return a job, or None."""
    with caller.db.read() as conn:
        one = job_reports.job(conn, caller.tenant, job_id, now=caller.db.now(conn).wall)
    if one is not None and caller.corpus is not None:
        # Of other kinds nobody can tell what they concern; an older job named another corpus.
        is_within = one["kind"] == "ingest" and one["payload"].get("corpus") == caller.corpus.name
        is_newer = one["created_at"] >= iso(caller.corpus.created_at)
        return one if is_within and is_newer else None
    return one


def job(caller: Caller, job_id: int) -> Json:
    """Return a job, or raise NotFound."""
    one = find_job(caller, job_id)
    if one is None:
        raise missing_job(job_id)
    return one


def missing_job(job_id: int) -> NotFound:
    """Return the error for a job that this tenant does not have."""
    return NotFound(f"job {job_id}: no such job. `quire jobs` lists them.")


pending_jobs_by_kind = query(job_reports.waiting_by_kind)
tasks = query(task_reports.page_of_tasks)
tasks_by_state = query(task_reports.tasks_of_job)
attempts = query(task_reports.attempts_of)
attempts_of_tasks = query(task_reports.attempts_of_tasks)
attempts_of_document = query(task_reports.attempts_of_document)
page_ranges = query(dashboard.ranges_of)
files = query(file_reports.page_of_files)
files_held_by_other_jobs = query(file_reports.held_elsewhere)
log = query(events.page)
log_tail = query(events.tail)
owners = query(owner_rows.list_owners)


def job_details(caller: Caller, job_id: int) -> Json:
    """Return a job with its files (failed ones first), tasks and attempts."""
    one = job(caller, job_id)
    one["file_list"] = files(caller, job_id, worst_first=True)
    one["task_list"] = tasks(caller, job_id)
    one["attempts"] = attempts(caller, job_id)
    return one


def files_in_progress(caller: Caller, job_id: int) -> tuple[list[Json], int]:
    """List the files that a job is indexing now; also count all pages that it has indexed."""
    with caller.db.read() as conn:
        active = file_reports.at_work(conn, job_id)
        tally = file_reports.tallies(conn, [job_id]).get(job_id)
    return active, (tally.pages if tally else 0) + sum(each["pages"] for each in active)


def reuse(caller: Caller, job_id: int) -> Json:
    """Sum up what a job reused instead of computing it again."""
    with caller.db.read() as conn:
        return file_reports.reused_by(conn, job_id)


def documents(
    caller: Caller, *, corpus: str | None = None, limit: int = 50, cursor: int | None = None,
    **filters: Any,
) -> Json:  # fmt: skip
    """List documents, latest first, with the cursor of the next page."""
    corpus = corpus_for(caller, corpus)
    with caller.db.read() as conn:
        if corpus is not None and corpora.find(conn, caller.tenant, corpus) is None:
            raise missing_corpus(corpus)
        page = document_reports.page_of_documents(
            conn, caller.tenant, limit=limit, cursor=cursor, corpus=corpus, **filters
        )
    return {**page, "items": [_within(caller, each) for each in page["items"]]}


def corpus_for(caller: Caller, name: str | None) -> str | None:
    """Return the corpus that a request is about, or raise NotFound for one that is not there."""
    if caller.corpus is None:
        return name
    if name not in (None, caller.corpus.name):
        raise missing_corpus(str(name))
    return caller.corpus.name


def missing_corpus(name: str) -> NotFound:
    """Return the error for a corpus that this tenant does not have."""
    return NotFound(f"corpus {name}: no such corpus. `quire corpus list` lists them.")


def _within(caller: Caller, one: Json) -> Json:
    """Return a document or hit without the names of corpora that are not there for the caller."""
    return one if caller.corpus is None else {**one, "corpora": [caller.corpus.name]}


def document(caller: Caller, document_id: int) -> Json:
    """Return a document with its page errors and generations, or raise NotFound."""
    with caller.db.read() as conn:
        corpus_id = caller.corpus.id if caller.corpus else None
        one = document_reports.document(conn, caller.tenant, document_id, corpus_id)
    if one is None:
        raise missing_document(document_id)
    return _within(caller, one)


def missing_document(document_id: int) -> NotFound:
    """Return the error for a document that this tenant does not have."""
    return NotFound(f"document {document_id}: no such document. `quire documents` lists them.")


def _workers(conn: Connection, caller: Caller) -> list[Json]:
    return statuses.workers(
        dialect.runner(conn),
        caller.tenant,
        now=caller.db.now(conn),
        lease=caller.db.lease_seconds,
        is_alive=caller.is_alive,
    )
