"""What was read: pages, their chunks and vectors, each stored once under what it was made from.

Rows here belong to no generation. The first commit of a key wins; a later one uses its row.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.model.pages import Page, Piece
from quire.store import dialect
from quire.store.document_tables import chunks, contents, pages, slices, vectors

p, c, v = pages.c, chunks.c, vectors.c


class Known(NamedTuple):
    """A page that was read before."""

    id: int
    text: str
    language: str
    seconds: float
    via: str


class Cutting(NamedTuple):
    """A page's text cut into pieces; `digests` name the chunks."""

    pieces: Sequence[Piece]
    digests: Sequence[str]


class NewPage(NamedTuple):
    """A page that was read now."""

    key: str
    page: Page
    language: str
    seconds: float


def known(conn: sa.Connection, tenant: str, keys: Sequence[str]) -> dict[str, Known]:
    """Return the pages that exist under these keys."""
    if not keys:
        return {}
    rows = conn.execute(
        sa.select(p.key, p.id, p.text, p.language, p.seconds, p.via).where(
            p.tenant == tenant, p.key.in_(sorted(keys))
        )
    )
    return {row[0]: Known(*row[1:]) for row in rows}


def of_image(conn: sa.Connection, tenant: str, image_key: str) -> Any | None:
    """Return a page that was recognised from the same picture."""
    return conn.execute(
        sa.select(pages).where(p.tenant == tenant, p.image_key == image_key).limit(1)
    ).one_or_none()


def put(conn: sa.Connection, tenant: str, fresh: Sequence[NewPage], task_id: int) -> dict[str, int]:
    """Store pages; returns the id under each key, of whoever stored it first."""
    dialect.insert_missing_blobs(
        conn,
        pages,
        [
            {
                "tenant": tenant,
                "key": each.key,
                "image_key": each.page.image_key,
                "text": dialect.storable(each.page.text),
                "words": each.page.words,
                "width": each.page.width,
                "height": each.page.height,
                "via": each.page.via,
                "language": each.language,
                "label": each.page.label,
                "seconds": each.seconds,
                "task_id": task_id,
            }
            for each in sorted(fresh)
        ],
    )
    return {key: found.id for key, found in known(conn, tenant, [e.key for e in fresh]).items()}


def cut_already(conn: sa.Connection, page_ids: Sequence[int], cut_id: int) -> set[int]:
    """Return which of the pages were cut this way before."""
    s = slices.c
    return set(
        conn.scalars(
            sa.select(s.page_id).distinct().where(s.page_id.in_(list(page_ids)), s.cut_id == cut_id)
        )
    )


def chunks_of(
    conn: sa.Connection, page_ids: Sequence[int], cut_id: int, model_id: int | None
) -> list[tuple[str, str]]:
    """List (digest, text) of the pages' chunks that have no vector of the model yet."""
    if model_id is None or not page_ids:
        return []
    s = slices.c
    rows = conn.execute(
        sa.select(c.digest, c.text)
        .join(slices, s.chunk_id == c.id)
        .join(vectors, sa.and_(v.model_id == model_id, v.chunk_id == c.id), isouter=True)
        .where(s.page_id.in_(list(page_ids)), s.cut_id == cut_id, v.chunk_id.is_(None))
        .distinct()
    )
    return [(row[0], row[1]) for row in rows]


def embedded(conn: sa.Connection, tenant: str, model_id: int, digests: Sequence[str]) -> set[str]:
    """Return which chunks have a vector of the model."""
    rows = conn.scalars(
        sa.select(c.digest)
        .join(vectors, sa.and_(v.chunk_id == c.id, v.model_id == model_id))
        .where(c.tenant == tenant, c.digest.in_(sorted(set(digests))))
    )
    return set(rows)


def put_chunks(
    conn: sa.Connection,
    tenant: str,
    texts: Mapping[str, tuple[str, str, int]],
    words: Mapping[str, str],
    task_id: int,
) -> dict[str, int]:
    """Store chunks, digest → (text, language, tokens), and index those that were not there.

    `words` are the texts as the full-text index takes them.
    """
    if not texts:
        return {}
    rows = [
        [tenant, digest, language, text, tokens, task_id]
        for digest, (text, language, tokens) in sorted(texts.items())
    ]
    columns = ("tenant", "digest", "language", "text", "tokens", "task_id")
    fresh = dialect.insert_missing(conn, chunks, columns, rows, ("id", "digest"))
    dialect.index_texts(conn, [(row[0], words[row[1]]) for row in fresh])
    ids = {row[1]: row[0] for row in fresh}
    if len(ids) < len(texts):
        found = conn.execute(
            sa.select(c.digest, c.id).where(
                c.tenant == tenant, c.digest.in_(sorted(set(texts) - set(ids)))
            )
        )
        ids.update({row[0]: row[1] for row in found})
        conn.execute(
            sa.update(chunks)
            .where(c.id.in_(sorted(ids.values())), c.condemned_at.is_not(None))
            .values(condemned_at=None)
        )
    return ids


def put_slices(
    conn: sa.Connection, cut_id: int, cuttings: Mapping[int, Cutting], ids: Mapping[str, int]
) -> None:
    """Say how pages are cut (page id → cutting)."""
    rows = [
        [page_id, cut_id, ordinal, ids[digest], piece.start, piece.stop]
        for page_id, cutting in sorted(cuttings.items())
        for ordinal, (piece, digest) in enumerate(zip(cutting.pieces, cutting.digests, strict=True))
    ]
    columns = ("page_id", "cut_id", "ordinal", "chunk_id", "start", "stop")
    dialect.insert_missing(conn, slices, columns, rows)


def put_vectors(
    conn: sa.Connection, tenant: str, model_id: int, found: Mapping[str, bytes]
) -> None:
    """Store vectors, by the digest of their chunk."""
    if not found:
        return
    ids = {
        row.digest: row.id
        for row in conn.execute(
            sa.select(c.digest, c.id).where(c.tenant == tenant, c.digest.in_(sorted(found)))
        )
    }
    rows = [
        {"model_id": model_id, "chunk_id": ids[digest], "vector": vector}
        for digest, vector in sorted(found.items())
        if digest in ids
    ]
    dialect.insert_missing_blobs(conn, vectors, rows)


def put_content(conn: sa.Connection, tenant: str, digest: str, size: int, stored_at: float) -> None:
    """Remember a blob, and clear its condemnation before anyone trusts that the file is there."""
    values = {
        "tenant": tenant, "digest": digest, "size": size, "stored_at": stored_at,
        "condemned_at": None,
    }  # fmt: skip
    dialect.upsert(conn, contents, values, ["tenant", "digest"], ["condemned_at"])


def size_of(conn: sa.Connection, tenant: str, digest: str) -> int | None:
    """Return the size of a blob that is not condemned to go."""
    found: int | None = conn.scalar(
        sa.select(contents.c.size).where(contents.c.tenant == tenant, contents.c.digest == digest)
    )
    return found
