"""Collects what no document uses any more: leaves of old generations, then pages, chunks, blobs.

What nothing refers to is condemned, waits out a grace that is longer than any reader, and is
deleted under its row's lock if that is still so. Whoever stores the same again clears the
condemnation under the same lock; see `pages`. Every act is bounded, and may be done by several
processes at once.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
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

#: Seconds between the condemnation of a row and its end.
GRACE = 3600.0
#: Rows that one look passes, rows that one transaction deletes, leaves that one gives up.
WINDOW, BATCH, LEAVES = 2_000, 200, 10_000
#: Seconds after which a transaction begins to remove no further file.
SPAN = 1.0
#: Seconds that a round spends on looking through a table, and on deleting from it; the next round
#: goes on from there.
PATIENCE = 2.0

Key = tuple[str, str]
Remove = Callable[[str], None]
g, d = generations.c, documents.c
_OVER = tuple(state for state in GenerationState if state.is_over)


class Stock(NamedTuple):
    """A table whose rows live as long as something refers to them."""

    table: sa.Table
    name: sa.Column[str]  # with the tenant, what a row is known by
    is_used: sa.ColumnElement[bool]

    def among(self, keys: Sequence[Key]) -> sa.ColumnElement[bool]:
        """Tell whether a row is one of these."""
        return sa.tuple_(self.table.c.tenant, self.name).in_(list(keys))


def _of(digest: sa.Column[str], *more: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    c = contents.c
    return sa.exists().where(digest.table.c.tenant == c.tenant, digest == c.digest, *more)


PAGES = Stock(pages, pages.c.key, sa.exists().where(generation_pages.c.page_id == pages.c.id))
CHUNKS = Stock(chunks, chunks.c.digest, sa.exists().where(slices.c.chunk_id == chunks.c.id))
CONTENTS = Stock(
    contents,
    contents.c.digest,
    sa.or_(
        _of(g.digest, g.recipe.is_not(None)),
        _of(d.digest),
        _of(d.thumbnail),
        # A file that came with another one is named by what was seen of it, until it is indexed.
        _of(d.seen, d.state != sa.literal_column(f"'{DocumentState.SUCCESS.value}'")),
    ),
)
#: A page's end frees chunks, so chunks come later.
STOCKS = (PAGES, CHUNKS, CONTENTS)


def retire(conn: sa.Connection, *, before: float, limit: int = LEAVES) -> int:
    """Take the leaves from generations that ended before a moment; returns how many lost theirs.

    A generation has all of its leaves or none, so that no other one takes over a part of them.
    """
    rows = conn.execute(
        sa.select(g.document_id, g.generation, g.pages)
        .where(is_state(g.state, *_OVER), g.recipe.is_not(None), g.finished_at < before)
        .order_by(g.finished_at)
        .limit(BATCH)
        .with_for_update(skip_locked=True)
    ).all()
    some: list[tuple[int, int]] = []
    room = limit
    for row in rows:
        if some and room < (row.pages or 0):
            break
        some.append((row.document_id, row.generation))
        room -= row.pages or 0
    if some:
        gp = generation_pages.c
        conn.execute(
            sa.delete(generation_pages).where(sa.tuple_(gp.document_id, gp.generation).in_(some))
        )
        conn.execute(
            sa.update(generations)
            .where(sa.tuple_(g.document_id, g.generation).in_(some))
            .values(recipe=None)
        )
    return len(some)


def look(conn: sa.Connection, stock: Stock, after: Key, *, limit: int) -> tuple[list[Key], Key]:
    """List rows behind `after` that nothing uses; returns also how far the look went."""
    tenant = stock.table.c.tenant
    place = sa.tuple_(sa.literal(after[0]), sa.literal(after[1]))
    rows = conn.execute(
        sa.select(tenant, stock.name, stock.is_used)
        .where(sa.tuple_(tenant, stock.name) > place)
        .order_by(tenant, stock.name)
        .limit(limit)
    ).all()
    unused = [(row[0], row[1]) for row in rows if not row[2]]
    return unused, (rows[-1][0], rows[-1][1]) if len(rows) == limit else ("", "")


def used_contents(
    conn: sa.Connection, after: Key, *, limit: int = WINDOW
) -> tuple[list[tuple[str, int]], Key]:
    """List digest and size of blobs in use behind `after`; returns also how far the look went."""
    c = contents.c
    place = sa.tuple_(sa.literal(after[0]), sa.literal(after[1]))
    rows = conn.execute(
        sa.select(c.tenant, c.digest, c.size)
        .where(sa.tuple_(c.tenant, c.digest) > place, CONTENTS.is_used)
        .order_by(c.tenant, c.digest)
        .limit(limit)
    ).all()
    some = [(row.digest, row.size) for row in rows]
    return some, (rows[-1].tenant, rows[-1].digest) if len(rows) == limit else ("", "")


def count_used_contents(conn: sa.Connection) -> int:
    """Count the blobs that are in use."""
    count = sa.select(sa.func.count()).select_from(contents).where(CONTENTS.is_used)
    return int(conn.scalar(count) or 0)


def condemn(stock: Stock, keys: Sequence[Key], conn: sa.Connection, now: Instant) -> int:
    """Condemn those rows that nothing uses and that are not condemned yet; returns how many."""
    statement = sa.update(stock.table).where(
        stock.among(keys), stock.table.c.condemned_at.is_(None), sa.not_(stock.is_used)
    )
    return conn.execute(statement.values(condemned_at=now.wall)).rowcount


class Swept(NamedTuple):
    """What became of condemned rows."""

    deleted: int
    spared: int


def sweep(
    conn: sa.Connection, stock: Stock, *, before: float, remove: Remove, limit: int = BATCH
) -> Swept:
    """Delete rows that were condemned before a moment, and spare those that are used again."""
    table = stock.table
    due = conn.execute(
        sa.select(table.c.tenant, stock.name)
        .where(table.c.condemned_at < before)
        .order_by(table.c.condemned_at)
        .limit(limit)
        # Whoever holds a row is about to use it.
        .with_for_update(skip_locked=True)
    ).all()
    if not due:
        return Swept(0, 0)
    # A statement of its own: it sees what was committed before the locks were taken.
    rows = conn.execute(
        sa.select(table, stock.is_used.label("is_used")).where(
            stock.among([(row[0], row[1]) for row in due])
        )
    ).all()
    spared = [(row.tenant, row._mapping[stock.name]) for row in rows if row.is_used]
    if spared:
        conn.execute(sa.update(table).where(stock.among(spared)).values(condemned_at=None))
    unused = [row for row in rows if not row.is_used]
    if stock is CONTENTS:
        return Swept(_delete_contents(conn, unused, remove), len(spared))
    _delete_rows(conn, stock, [row.id for row in unused])
    return Swept(len(unused), len(spared))


def _delete_rows(conn: sa.Connection, stock: Stock, ids: list[int]) -> None:
    if stock is PAGES:
        conn.execute(sa.delete(slices).where(slices.c.page_id.in_(ids)))
    else:
        dialect.unindex_texts(conn, ids)
        conn.execute(sa.delete(vectors).where(vectors.c.chunk_id.in_(ids)))
    conn.execute(sa.delete(stock.table).where(stock.table.c.id.in_(ids)))


def _delete_contents(conn: sa.Connection, rows: Sequence[Any], remove: Remove) -> int:
    """Delete rows of blobs, and each file before the commit that ends the last row naming it.

    A put first writes its row, under the same lock: it never trusts a file that is about to go.
    A crash leaves a row without a file, which the next put repairs.
    """
    c = contents.c
    deleted, until = 0, time.monotonic() + SPAN
    for row in sorted(rows, key=lambda row: (row.digest, row.tenant)):
        # A bucket takes its time, and rows are locked meanwhile; the next transaction goes on.
        if time.monotonic() >= until:
            break
        if not dialect.advisory_lock(conn, blob_lock(row.digest), wait=False):
            continue
        conn.execute(sa.delete(contents).where(c.tenant == row.tenant, c.digest == row.digest))
        # Tenants share the file without knowing it.
        if not conn.scalar(sa.select(sa.exists().where(c.digest == row.digest))):
            remove(row.digest)
        deleted += 1
    return deleted


class Collector:
    """Goes through everything again and again, a part of it at each round."""

    def __init__(self, db: Database, remove: Remove, *, grace: float = GRACE) -> None:
        self.db = db
        self.remove = remove
        self.grace = grace
        self.places: dict[str, Key] = {}

    def round(self, *, keep_seconds: float, patience: float = PATIENCE) -> dict[str, int]:
        """Make one round; returns what was done, by name."""
        done: Counter[str] = Counter()
        while some := self.db.write(lambda conn, now: retire(conn, before=now.wall - keep_seconds)):
            done["generations"] += some
        for stock in STOCKS:
            done[f"{stock.table.name}_condemned"] += self._condemn(stock, patience)
            done[stock.table.name] += self._sweep(stock, patience)
        return {name: count for name, count in done.items() if count}

    def _condemn(self, stock: Stock, patience: float) -> int:
        """Look through the table from where the last round ended, until its end or out of time."""
        condemned, until = 0, time.monotonic() + patience
        place = self.places.get(stock.table.name, ("", ""))
        while True:
            with self.db.read() as conn:
                unused, place = look(conn, stock, place, limit=WINDOW)
            condemned += sum(
                self.db.write(partial(condemn, stock, unused[start : start + BATCH]))
                for start in range(0, len(unused), BATCH)
            )
            self.places[stock.table.name] = place
            if place == ("", "") or time.monotonic() >= until:
                return condemned

    def _sweep(self, stock: Stock, patience: float) -> int:
        deleted, until = 0, time.monotonic() + patience
        while True:
            swept = self.db.write(
                lambda conn, now: sweep(
                    conn, stock, before=now.wall - self.grace, remove=self.remove
                )
            )
            deleted += swept.deleted
            if not any(swept) or time.monotonic() >= until:
                return deleted
