"""Reuse statistics: how much a generation made, and how much it took from earlier work.

They are stored as JSON in `generations.reused`. Names end in `_made` or `_reused`.
"""

import json
from collections import Counter
from collections.abc import Mapping

import sqlalchemy as sa

from quire.store.db.schema.documents import generation_pages, generations, pages

g, gp = generations.c, generation_pages.c

_MINE = sa.and_(g.document_id == sa.bindparam("document"), g.generation == sa.bindparam("mine"))
_READ = sa.select(g.reused).where(_MINE)
_WRITE = sa.update(generations).where(_MINE).values(reused=sa.bindparam("counts"))
_REUSED_PAGES = (
    sa.select(pages.c.via, sa.func.count(), sa.func.sum(pages.c.seconds))
    .join(generation_pages, gp.page_id == pages.c.id)
    .where(gp.document_id == sa.bindparam("document"), gp.generation == sa.bindparam("mine"))
    .group_by(pages.c.via)
)


def add(conn: sa.Connection, document_id: int, generation: int, counts: Mapping[str, int]) -> None:
    """Add counts to a generation; the caller has locked the document."""
    mine = {"document": document_id, "mine": generation}
    total = Counter(json.loads(conn.scalar(_READ, mine) or "{}"))
    total.update(counts)
    conn.execute(_WRITE, {**mine, "counts": json.dumps(total, sort_keys=True)})


def add_reused_pages(
    conn: sa.Connection, document_id: int, generation: int, *, is_whole_file: bool = False
) -> None:
    """Count the pages that a generation has before it reads any, and the time they once took."""
    counts: Counter[str] = Counter()
    for via, count, seconds in conn.execute(
        _REUSED_PAGES, {"document": document_id, "mine": generation}
    ):
        counts["ocr_reused" if via == "ocr" else "pages_reused"] += count
        counts["milliseconds_reused"] += round((seconds or 0.0) * 1000)
    if is_whole_file:
        counts["whole_reused"] = 1
    add(conn, document_id, generation, counts)
