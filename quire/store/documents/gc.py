"""Garbage collection (mark and sweep) of page lists, pages, chunks and blobs.

A row that nothing refers to is marked (`condemned_at`). After a grace period, longer than any
reader, it is deleted under its row lock if still nothing refers to it. Whoever stores the same
content again unmarks it under the same lock; see `pages`. Every transaction is bounded, and several
processes may collect at once.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.clock import Instant
from quire.model.states import DocumentState, GenerationState
from quire.store.db import dialect
from quire.store.db.engine import Database
from quire.store.db.schema.documents import (
    chunks,
    contents,
    documents,
    generation_pages,
    generations,
    pages,
    slices,
    vectors,
)
from quire.store.db.schema.queue import is_state
from quire.store.documents.pages import blob_lock

#: Seconds between marking a row and deleting it.
GRACE = 3600.0
#: Rows of one scan, rows and page list entries that one transaction deletes.
SCAN_ROWS, DELETE_ROWS, PAGE_ROWS = 2_000, 200, 10_000
#: Seconds after which a transaction removes no further file.
MAX_SECONDS = 1.0
#: Seconds that a round spends on marking in a table, and on deleting from it; the next round
#: continues there.
ROUND_SECONDS = 2.0

Key = tuple[str, str]
Remove = Callable[[str], None]
g, d = generations.c, documents.c
_ENDED = tuple(state for state in GenerationState if state.is_over)


class Collectable(NamedTuple):
    """A table whose rows are deleted when nothing refers to them."""

    table: sa.Table
    name: sa.Column[str]  # the key of a row, together with the tenant
    is_used: sa.ColumnElement[bool]

    def has_key(self, keys: Sequence[Key]) -> sa.ColumnElement[bool]:
        """Return the condition that a row has one of the keys."""
        return sa.tuple_(self.table.c.tenant, self.name).in_(list(keys))


def _refers(digest: sa.Column[str], *more: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    c = contents.c
    return sa.exists().where(digest.table.c.tenant == c.tenant, digest == c.digest, *more)


PAGES = Collectable(pages, pages.c.key, sa.exists().where(generation_pages.c.page_id == pages.c.id))
CHUNKS = Collectable(chunks, chunks.c.digest, sa.exists().where(slices.c.chunk_id == chunks.c.id))
CONTENTS = Collectable(
    contents,
    contents.c.digest,
    sa.or_(
        _refers(g.digest, g.recipe.is_not(None)),
        _refers(d.digest),
        _refers(d.thumbnail),
        # Before it is indexed, an upload or attachment refers to its blob by `seen`.
        _refers(d.seen, d.state != sa.literal_column(f"'{DocumentState.SUCCESS.value}'")),
    ),
)
#: Deleting pages frees chunks, so chunks come later.
COLLECTABLES = (PAGES, CHUNKS, CONTENTS)


def delete_old_page_lists(conn: sa.Connection, *, before: float, limit: int = PAGE_ROWS) -> int:
    """Delete the page lists of generations that ended before a time; return how many.

    A list is deleted as a whole, so that no other generation copies a part of it.
    """
    rows = conn.execute(
        sa.select(g.document_id, g.generation, g.pages)
        .where(is_state(g.state, *_ENDED), g.recipe.is_not(None), g.finished_at < before)
        .order_by(g.finished_at)
        .limit(DELETE_ROWS)
        .with_for_update(skip_locked=True)
    ).all()
    ended: list[tuple[int, int]] = []
    rows_left = limit
    for row in rows:
        if ended and rows_left < (row.pages or 0):
            break
        ended.append((row.document_id, row.generation))
        rows_left -= row.pages or 0
    if ended:
        gp = generation_pages.c
        conn.execute(
            sa.delete(generation_pages).where(sa.tuple_(gp.document_id, gp.generation).in_(ended))
        )
        conn.execute(
            sa.update(generations)
            .where(sa.tuple_(g.document_id, g.generation).in_(ended))
            .values(recipe=None)
        )
    return len(ended)


def find_unused(
    conn: sa.Connection, kind: Collectable, after: Key, *, limit: int
) -> tuple[list[Key], Key]:
    """Return the keys of unused rows after `after`, and the key to continue from."""
    tenant = kind.table.c.tenant
    position = sa.tuple_(sa.literal(after[0]), sa.literal(after[1]))
    rows = conn.execute(
        sa.select(tenant, kind.name, kind.is_used)
        .where(sa.tuple_(tenant, kind.name) > position)
        .order_by(tenant, kind.name)
        .limit(limit)
    ).all()
    unused = [(tenant, key) for tenant, key, is_used in rows if not is_used]
    last_tenant, last_key, _ = rows[-1] if len(rows) == limit else ("", "", None)
    return unused, (last_tenant, last_key)


def used_blobs(db: Database) -> Iterator[list[tuple[str, int]]]:
    """Yield digest and size of all used blobs, in batches of one read transaction each."""
    c = contents.c
    key = sa.tuple_(c.tenant, c.digest)
    query = sa.select(c.tenant, c.digest, c.size).where(CONTENTS.is_used).order_by(*key.clauses)
    after = ("", "")
    while True:
        with db.read() as conn:
            rows = conn.execute(query.where(key > after).limit(SCAN_ROWS)).all()
        if not rows:
            return
        yield [(row.digest, row.size) for row in rows]
        after = (rows[-1].tenant, rows[-1].digest)


def count_used_blobs(conn: sa.Connection) -> int:
    """Count the blobs that are in use."""
    count = sa.select(sa.func.count()).select_from(contents).where(CONTENTS.is_used)
    return int(conn.scalar(count) or 0)


def mark(kind: Collectable, keys: Sequence[Key], conn: sa.Connection, now: Instant) -> int:
    """Mark rows that nothing uses; return how many were not marked before."""
    marked_at = kind.table.c.condemned_at
    # A mark of the future is from a clock that was set back since.
    is_new = sa.or_(marked_at.is_(None), marked_at > now.wall)
    statement = sa.update(kind.table).where(kind.has_key(keys), is_new, sa.not_(kind.is_used))
    return conn.execute(statement.values(condemned_at=now.wall)).rowcount


def sweep(
    conn: sa.Connection,
    kind: Collectable,
    *,
    before: float,
    remove: Remove,
    limit: int = DELETE_ROWS,
) -> tuple[int, int]:
    """Delete rows that were marked before a time; unmark those that are used again.

    Returns how many were deleted and how many unmarked.
    """
    table = kind.table
    due = conn.execute(
        sa.select(table.c.tenant, kind.name)
        .where(table.c.condemned_at < before)
        .order_by(table.c.condemned_at)
        .limit(limit)
        # Whoever has locked a row is about to use it.
        .with_for_update(skip_locked=True)
    ).all()
    if not due:
        return 0, 0
    # A second statement: it sees what was committed before the locks were taken.
    rows = conn.execute(
        sa.select(table, kind.is_used.label("is_used")).where(
            kind.has_key([(tenant, key) for tenant, key in due])
        )
    ).all()
    unmarked = [(row.tenant, row._mapping[kind.name]) for row in rows if row.is_used]
    if unmarked:
        conn.execute(sa.update(table).where(kind.has_key(unmarked)).values(condemned_at=None))
    unused = [row for row in rows if not row.is_used]
    if kind is CONTENTS:
        return _delete_contents(conn, unused, remove), len(unmarked)
    _delete_rows(conn, kind, unused)
    return len(unused), len(unmarked)


def _delete_rows(conn: sa.Connection, kind: Collectable, rows: Sequence[Any]) -> None:
    ids = [row.id for row in rows]
    if kind is PAGES:
        conn.execute(sa.delete(slices).where(slices.c.page_id.in_(ids)))
    else:
        for tenant in {row.tenant for row in rows}:
            dialect.unindex_texts(conn, tenant, [row.id for row in rows if row.tenant == tenant])
        conn.execute(sa.delete(vectors).where(vectors.c.chunk_id.in_(ids)))
    conn.execute(sa.delete(kind.table).where(kind.table.c.id.in_(ids)))


def _delete_contents(conn: sa.Connection, rows: Sequence[Any], remove: Remove) -> int:
    """Delete rows of blobs; delete the file with its last row, before the commit.

    Storing a blob writes its row first, under the same lock, so it never relies on a file that is
    about to be deleted. A crash leaves a row without a file, which storing the blob again repairs.
    """
    c = contents.c
    deleted, until = 0, time.monotonic() + MAX_SECONDS
    for row in sorted(rows, key=lambda row: (row.digest, row.tenant)):
        # A bucket may be slow and the rows are locked: the next transaction continues.
        if time.monotonic() >= until:
            break
        if not dialect.advisory_lock(conn, blob_lock(row.digest), wait=False):
            continue
        conn.execute(sa.delete(contents).where(c.tenant == row.tenant, c.digest == row.digest))
        # Tenants share the file.
        if not conn.scalar(sa.select(sa.exists().where(c.digest == row.digest))):
            remove(row.digest)
        deleted += 1
    return deleted


class Collector:
    """Collects in rounds, each of which continues where the last one stopped."""

    def __init__(self, db: Database, remove: Remove, *, grace: float = GRACE) -> None:
        self.db = db
        self.remove = remove
        self.grace = grace
        self.positions: dict[str, Key] = {}

    def round(self, *, keep_seconds: float, seconds: float = ROUND_SECONDS) -> dict[str, int]:
        """Run one round; return what was done, by name."""
        done: Counter[str] = Counter()
        while ended := self.db.write(
            lambda conn, now: delete_old_page_lists(conn, before=now.wall - keep_seconds)
        ):
            done["generations"] += ended
        for kind in COLLECTABLES:
            done[f"{kind.table.name}_marked"] += self._mark(kind, seconds)
            done[kind.table.name] += self._sweep(kind, seconds)
        return {name: count for name, count in done.items() if count}

    def _mark(self, kind: Collectable, seconds: float) -> int:
        """Scan the table from where the last round stopped, to its end or until time is up."""
        marked, until = 0, time.monotonic() + seconds
        position = self.positions.get(kind.table.name, ("", ""))
        while True:
            with self.db.read() as conn:
                unused, position = find_unused(conn, kind, position, limit=SCAN_ROWS)
            marked += sum(
                self.db.write(partial(mark, kind, unused[start : start + DELETE_ROWS]))
                for start in range(0, len(unused), DELETE_ROWS)
            )
            self.positions[kind.table.name] = position
            if position == ("", "") or time.monotonic() >= until:
                return marked

    def _sweep(self, kind: Collectable, seconds: float) -> int:
        deleted, until = 0, time.monotonic() + seconds
        while True:
            gone, unmarked = self.db.write(
                lambda conn, now: sweep(
                    conn, kind, before=now.wall - self.grace, remove=self.remove
                )
            )
            deleted += gone
            if not (gone or unmarked) or time.monotonic() >= until:
                return deleted
