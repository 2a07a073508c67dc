"""Filter jobs and documents by a substring, among the latest only, because no index helps."""

import json
from typing import Any

import sqlalchemy as sa

from quire.store.db.schema.documents import documents
from quire.store.db.schema.queue import jobs, owners

j, d = jobs.c, documents.c
#: Latest jobs or documents that are searched.
SEARCHED = 20_000
#: Maximum characters of the substring.
LONGEST = 200


def job_has(text: str) -> sa.ColumnElement[bool]:
    """Match jobs by a substring of kind, owner, platform, account or payload."""
    # Payloads are ASCII JSON: non-ASCII letters and quotes are escaped.
    inside = json.dumps(text[:LONGEST])[1:-1]
    columns = (j.kind, j.platform, j.account, owners.c.user_name)
    last = sa.select(sa.func.max(jobs.alias("newest").c.id)).scalar_subquery()
    return sa.and_(
        sa.or_(
            *(_part(column, text) for column in columns),
            _part(j.payload, text),
            _part(j.payload, inside),
        ),
        j.id > last - SEARCHED,
    )


def document_has(text: str) -> sa.ColumnElement[bool]:
    """Match documents by a substring of their name."""
    last = sa.select(sa.func.max(documents.alias("newest").c.id)).scalar_subquery()
    return sa.and_(_part(d.name, text), d.id > last - SEARCHED)


def _part(column: sa.ColumnElement[Any], text: str) -> sa.ColumnElement[bool]:
    return column.icontains(text[:LONGEST], autoescape=True)
