"""What a generation made and what it reused: its account, and what that saved."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from quire.model.states import GenerationState
from quire.store.db.schema.documents import documents, generation_pages, generations, pages
from quire.store.db.schema.queue import is_state

d, g, gp = documents.c, generations.c, generation_pages.c

_MINE = sa.and_(g.document_id == sa.bindparam("of"), g.generation == sa.bindparam("number"))
_ACCOUNT = sa.select(g.reused).where(_MINE)
_KEEP = sa.update(generations).where(_MINE).values(reused=sa.bindparam("account"))


def add(conn: sa.Connection, document_id: int, generation: int, counts: Mapping[str, int]) -> None:
    """Add to a generation's account; the caller has locked the document."""
    which = {"of": document_id, "number": generation}
    total = Counter(json.loads(conn.scalar(_ACCOUNT, which) or "{}"))
    total.update(counts)
    conn.execute(_KEEP, {**which, "account": json.dumps(total, sort_keys=True)})


_KEPT = (
    sa.select(pages.c.via, sa.func.count(), sa.func.sum(pages.c.seconds))
    .join(generation_pages, gp.page_id == pages.c.id)
    .where(gp.document_id == sa.bindparam("of"), gp.generation == sa.bindparam("number"))
    .group_by(pages.c.via)
)


def count_reused(conn: sa.Connection, document_id: int, generation: int) -> dict[str, int]:
    """Count the pages that a generation has from earlier work, and what they cost then."""
    rows = conn.execute(_KEPT, {"of": document_id, "number": generation}).all()
    found: Counter[str] = Counter()
    for via, count, seconds in rows:
        found["ocr_reused" if via == "ocr" else "pages_reused"] += count
        found["milliseconds_reused"] += round((seconds or 0.0) * 1000)
    return dict(found)


def count_earlier_pages(conn: sa.Connection, tenant: str, first_key: str) -> int:
    """Return how many pages a file gave whose first page has this key; 0 if none is known."""
    row = conn.execute(
        sa.select(g.document_id, g.generation)
        .join(
            generation_pages,
            sa.and_(gp.document_id == g.document_id, gp.generation == g.generation),
        )
        .join(pages, pages.c.id == gp.page_id)
        .where(
            pages.c.tenant == tenant,
            pages.c.key == first_key,
            gp.number == 1,
            is_state(g.state, GenerationState.LIVE, GenerationState.REPLACED),
        )
        .order_by(g.document_id.desc(), g.generation.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return 0
    found: int | None = conn.scalar(
        sa.select(sa.func.count()).where(gp.document_id == row[0], gp.generation == row[1])
    )
    return found or 0


def set_thumbnail(conn: sa.Connection, document_id: int, digest: str | None) -> None:
    """Say which blob is the picture of the document's first page."""
    if digest is not None:
        conn.execute(sa.update(documents).where(d.id == document_id).values(thumbnail=digest))


_DRAWN = sa.select(sa.literal(1)).where(
    d.id == sa.bindparam("of"),
    d.thumbnail.is_not(None),
    gp.document_id == d.id,
    gp.generation == d.live_generation,
    gp.number == 1,
    gp.key == sa.bindparam("first"),
)


def has_thumbnail(conn: sa.Connection, document_id: int, first: str) -> bool:
    """Tell whether a document has a picture of its first page, and that has this key."""
    return conn.scalar(_DRAWN, {"of": document_id, "first": first}) is not None


def share_thumbnail(conn: sa.Connection, giver_id: int, document_id: int) -> None:
    """Use another document's picture: the bytes are the same."""
    found: Any = conn.scalar(sa.select(d.thumbnail).where(d.id == giver_id))
    set_thumbnail(conn, document_id, found)
