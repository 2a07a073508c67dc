"""Read model of a document's chunks, in the order of its text. Nothing here writes."""

from typing import Any

import sqlalchemy as sa

from quire.store.db.schema.documents import chunks, generation_pages, generations, slices
from quire.store.reports.documents import generation_shown

gp, s, c, g = generation_pages.c, slices.c, chunks.c, generations.c


def page_of_chunks(
    conn: sa.Connection, row: Any, *, limit: int = 50, cursor: tuple[int, int] = (0, -1)
) -> dict[str, Any]:
    """List the chunks of a document (its row); the cursor is the last page and ordinal."""
    number, ordinal = cursor
    rows = conn.execute(
        sa.select(gp.number, s.ordinal, s.start, s.stop, c.text, c.language, c.tokens)
        .join(
            generations,
            sa.and_(g.document_id == gp.document_id, g.generation == gp.generation),
        )
        .join(slices, sa.and_(s.page_id == gp.page_id, s.cut_id == g.cut_id))
        .join(chunks, c.id == s.chunk_id)
        .where(
            gp.document_id == row.id,
            gp.generation == generation_shown(row),
            sa.or_(gp.number > number, sa.and_(gp.number == number, s.ordinal > ordinal)),
        )
        .order_by(gp.number, s.ordinal)
        .limit(limit + 1)
    ).all()
    names = ("page", "ordinal", "start", "stop", "text", "language", "tokens")
    items = [dict(zip(names, each, strict=True)) for each in rows[:limit]]
    more = f"{items[-1]['page']}.{items[-1]['ordinal']}" if len(rows) > limit else None
    return {"items": items, "next": more}
