"""Finds passwords and signatures that earlier releases stored in clear, and seals or masks them.

What is fetched with later is sealed: payloads, and the steps that a listing resumes from. What is
only shown is masked. A document gets the URI under which it is known from now on; if another
document has it, because only their signatures differ, its own stays apart by its marks.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire import url_secrets
from quire.clock import Instant
from quire.store.access.secrets import Sealer
from quire.store.db import dialect
from quire.store.db.engine import Database
from quire.store.db.schema.documents import documents, generations
from quire.store.db.schema.queue import attempts, events, jobs, owners, steps, tasks

BATCH = 500
Change = Callable[[str, Sealer], str]


class Column(NamedTuple):
    """A column that holds URLs, whose rows belong to a tenant, and how it is changed."""

    table: sa.Table
    name: str
    tenant: sa.ScalarSelect[Any] | sa.ColumnElement[Any]
    change: Change

    @property
    def is_json(self) -> bool:
        """Whether its texts are JSON."""
        return self.change in (_sealed_json, _masked_json)


def _sealed_json(text: str, sealer: Sealer) -> str:
    return json.dumps(url_secrets.each_text(json.loads(text), sealer.seal))


def _masked_json(text: str, sealer: Sealer) -> str:
    return json.dumps(url_secrets.masked_json(text))


def _masked(text: str, sealer: Sealer) -> str:
    return url_secrets.masked(text)


def _identity(text: str, sealer: Sealer) -> str:
    return sealer.identity(text)


def _of_owner(table: sa.Table) -> sa.ScalarSelect[Any]:
    return sa.select(owners.c.tenant).where(owners.c.id == table.c.owner_id).scalar_subquery()


_OF_STEP = (
    sa.select(owners.c.tenant)
    .join(tasks, tasks.c.owner_id == owners.c.id)
    .where(tasks.c.id == steps.c.task_id)
    .scalar_subquery()
)
_ANY = sa.literal("")
COLUMNS = (
    Column(jobs, "payload", _of_owner(jobs), _sealed_json),
    Column(tasks, "payload", _of_owner(tasks), _sealed_json),
    Column(steps, "result", _OF_STEP, _sealed_json),
    Column(documents, "source", documents.c.tenant, _identity),
    Column(documents, "uri", documents.c.tenant, _identity),
    *(Column(jobs, name, _ANY, _masked) for name in ("message", "error")),
    *(Column(tasks, name, _ANY, _masked) for name in ("message", "error")),
    *(Column(attempts, name, _ANY, _masked) for name in ("error", "traceback")),
    Column(documents, "error", _ANY, _masked),
    Column(generations, "error", _ANY, _masked),
    *(Column(table, "result", _ANY, _masked_json) for table in (jobs, tasks)),
    Column(events, "detail", _ANY, _masked_json),
)


class _Row(NamedTuple):
    key: tuple[Any, ...]
    tenant: str
    text: str


def find(db: Database) -> Iterator[str]:
    """Yield the name of each row and column with a secret in clear, in short reads."""
    for column in COLUMNS:
        for row in _rows(db, column):
            yield f"{column.table.name}.{column.name} {'.'.join(map(str, row.key))}"


def repair(db: Database, sealer_of: Callable[[str], Sealer]) -> int:
    """Seal or mask what `find` finds; returns how many values."""
    sealers: dict[str, Sealer] = {}
    count = 0
    for column in COLUMNS:
        for row in list(_rows(db, column)):
            if row.tenant not in sealers:
                sealers[row.tenant] = sealer_of(row.tenant)
            count += db.write(_change(column, row, sealers[row.tenant]))
    if count:
        db.truncate_log()  # which has the old rows, too
    return count


def _change(column: Column, row: _Row, sealer: Sealer) -> Callable[[sa.Connection, Instant], int]:
    where = [key == value for key, value in zip(column.table.primary_key, row.key, strict=True)]
    stored = column.table.c[column.name]

    def act(conn: sa.Connection, now: Instant) -> int:
        dialect.erase_freed(conn)
        new = column.change(row.text, sealer)
        if stored is documents.c.uri and _is_taken(conn, row.tenant, new):
            new = sealer.seal(row.text)
        if sealer.has_found:
            sealer.store(conn, used_at=now.wall)
        # Not if somebody has written it meanwhile.
        changed = sa.update(column.table).where(*where, stored == row.text)
        return conn.execute(changed.values({stored: new})).rowcount

    return act


def _is_taken(conn: sa.Connection, tenant: str, uri: str) -> bool:
    query = sa.select(documents.c.id).where(documents.c.tenant == tenant, documents.c.uri == uri)
    return conn.execute(query).first() is not None


def _rows(db: Database, column: Column) -> Iterator[_Row]:
    keys, stored = list(column.table.primary_key), column.table.c[column.name]
    # Few texts look like a URL with a secret; only these are taken apart.
    is_like = sa.and_(stored.contains("://"), sa.or_(stored.contains("@"), stored.contains("=")))
    query = sa.select(*keys, column.tenant.label("of_tenant"), stored.label("stored"))
    query = query.where(is_like).order_by(*keys).limit(BATCH)
    after: tuple[Any, ...] | None = None
    while True:
        here = query
        if after is not None:
            last = sa.tuple_(*(sa.literal(v, k.type) for k, v in zip(keys, after, strict=True)))
            here = query.where(sa.tuple_(*keys) > last)
        with db.read() as conn:
            dialect.lift_timeouts(conn)
            rows = conn.execute(here).all()
        for *key, tenant, text in rows:
            if _is_open(text, column):
                yield _Row(tuple(key), tenant or "", text)
        if len(rows) < BATCH:
            return
        after = tuple(rows[-1][: len(keys)])


def _holds_open(value: Any) -> bool:
    """Tell whether a JSON value holds a secret that is neither sealed nor masked."""
    found: list[str] = []

    def look(text: str) -> str:
        found.extend(url_secrets.open_secrets(text))
        return text

    url_secrets.each_text(value, look)
    return bool(found)


def _is_open(text: str, column: Column) -> bool:
    try:
        return _holds_open(json.loads(text) if column.is_json else text)
    except ValueError:
        return False
