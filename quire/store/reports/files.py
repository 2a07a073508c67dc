"""The files of a job: states and progress. Nothing here writes."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from quire.model.states import (
    DOCUMENT_LOCKED,
    TASK_OPEN,
    DocumentState,
    GenerationState,
    TaskState,
)
from quire.store.db import dialect
from quire.store.db.schema.documents import documents, generation_pages, generations
from quire.store.db.schema.queue import is_state, tasks
from quire.store.reports.documents import reuse
from quire.url_secrets import masked_values

d, g, gp, t = documents.c, generations.c, generation_pages.c, tasks.c
#: States of a file in its job, in life-cycle order.
STATES = ("pending", "indexing", "success", "failed", "cancelled")
_RANK = {"failed": 0, "indexing": 1}


def _state() -> sa.Case[Any]:
    """Return the state of a file in the job that created its generation."""
    again = sa.exists().where(
        t.document_id == g.document_id,
        t.generation == g.generation,
        t.job_id == g.job_id,
        is_state(t.state, *TASK_OPEN),
    )
    is_begun = sa.and_(d.generation == g.generation, is_state(d.state, DocumentState.INDEXING))
    return sa.case(
        (is_state(g.state, GenerationState.LIVE, GenerationState.REPLACED), "success"),
        (sa.and_(is_state(g.state, GenerationState.BUILDING), is_begun), "indexing"),
        (is_state(g.state, GenerationState.BUILDING), "pending"),
        # A failed file that is being retried is pending.
        (again, "pending"),
        (is_state(g.state, GenerationState.FAILED), "failed"),
        else_="cancelled",
    )


def _of_jobs(query: sa.Select[Any], mine: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Keep the newest generation of each document per job."""
    later = generations.alias("later")
    return query.join(documents, d.id == g.document_id).where(
        mine,
        sa.not_(
            sa.exists().where(
                later.c.document_id == g.document_id,
                later.c.generation > g.generation,
                later.c.job_id == g.job_id,
            )
        ),
    )


class Tally(dict[str, int]):
    """Files of a job by state, and the number with page errors."""

    with_errors = 0
    pages = 0


def tallies(conn: sa.Connection, job_ids: Sequence[int]) -> dict[int, Tally]:
    """Count the files of jobs by state; jobs without files are omitted."""
    if not job_ids:
        return {}
    found: dict[int, Tally] = {}
    given = {"jobs": dialect.encode_ids(conn, sorted(job_ids))}
    for job_id, name, count, spoilt, read in conn.execute(_tallying(conn), given):
        tally = found.setdefault(job_id, Tally())
        tally[name] = count
        if name == "success":
            tally.with_errors, tally.pages = spoilt, int(read or 0)
    for tally in found.values():
        ordered = {name: tally[name] for name in STATES if name in tally}
        tally.clear()
        tally.update(ordered)
    return found


@dialect.statement
def _tallying(conn: sa.Connection) -> sa.Select[Any]:
    state = _state().label("state")
    return _of_jobs(
        sa.select(
            g.job_id,
            state,
            sa.func.count(),
            sa.func.count().filter(g.page_errors > 0),
            sa.func.sum(g.pages),
        ),
        dialect.id_in(conn, g.job_id, "jobs"),
    ).group_by(g.job_id, state)


def page_of_files(
    conn: sa.Connection,
    tenant: str,
    job_id: int,
    *,
    states: Sequence[str] = (),
    with_errors: bool = False,
    worst_first: bool = False,
    limit: int = 50,
    cursor: int | None = None,
) -> dict[str, Any]:
    """List the files of a job, oldest first; by state, or only those with page errors.

    With `worst_first` failed files come first, and there is no next page.
    """
    state = _state()
    query = _of_jobs(
        sa.select(
            d.id.label("document_id"), d.name, d.uri, state.label("state"), g.generation, g.pages,
            g.chunks, g.page_errors, g.error, g.why,
        ),
        g.job_id == job_id,
    ).where(d.id > (cursor or 0), d.tenant == tenant)  # fmt: skip
    if states:
        query = query.where(state.in_(list(states)))
    if with_errors:
        query = query.where(g.page_errors > 0)
    if worst_first:
        rank = sa.case(_RANK, value=state, else_=len(_RANK))
        query = query.order_by(rank, g.page_errors.desc())
    rows = conn.execute(query.order_by(d.id).limit(limit + 1)).all()
    items = [masked_values(row._asdict(), "uri", "error") for row in rows[:limit]]
    has_more = len(rows) > limit and not worst_first
    return {"items": items, "next": str(items[-1]["document_id"]) if has_more else None}


def at_work(conn: sa.Connection, job_id: int, *, limit: int = 8) -> list[dict[str, Any]]:
    """List the documents that a job is indexing now, with the pages committed so far."""
    running = conn.execute(
        sa.select(t.document_id, t.generation, d.name, t.message, t.progress, t.kind)
        .join(documents, d.id == t.document_id)
        .where(t.job_id == job_id, is_state(t.state, TaskState.RUNNING))
        .order_by(t.id)
        .limit(limit * 4)
    ).all()
    found: dict[int, dict[str, Any]] = {}
    for row in running:
        if row.document_id not in found and len(found) < limit:
            done, total = leaf_counts(conn, row.document_id, row.generation)
            found[row.document_id] = {
                "document_id": row.document_id, "name": row.name, "message": row.message,
                "progress": row.progress, "kind": row.kind, "pages": done, "of": total,
            }  # fmt: skip
    return list(found.values())


def leaf_counts(conn: sa.Connection, document_id: int, generation: int) -> tuple[int, int]:
    """Return how many pages of a generation are done or failed, and its total."""
    done, total = conn.execute(
        sa.select(
            sa.func.count().filter(sa.or_(gp.page_id.is_not(None), gp.error.is_not(None))),
            sa.func.count(),
        ).where(gp.document_id == document_id, gp.generation == generation)
    ).one()
    return done, total


def reused_by(conn: sa.Connection, job_id: int) -> dict[str, Any]:
    """Sum the reuse statistics of the generations of a job."""
    total: dict[str, int] = {}
    for text in conn.scalars(sa.select(g.reused).where(g.job_id == job_id, g.reused != "{}")):
        for name, count in json.loads(text).items():
            total[name] = total.get(name, 0) + count
    files = total.get("whole_reused", 0)
    return {**reuse(json.dumps(total)), "whole": files}


def held_elsewhere(
    conn: sa.Connection, tenant: str, job_id: int, sources: Sequence[str]
) -> list[dict[str, Any]]:
    """Count documents of these sources that other jobs are indexing, by job."""
    rows = conn.execute(
        sa.select(g.job_id, sa.func.count())
        .join(documents, sa.and_(d.id == g.document_id, d.generation == g.generation))
        .where(
            d.tenant == tenant,
            d.source.in_(list(sources)),
            is_state(d.state, *DOCUMENT_LOCKED),
            g.job_id != job_id,
        )
        .group_by(g.job_id)
        .order_by(g.job_id)
    )
    return [{"job_id": other, "files": count} for other, count in rows]
