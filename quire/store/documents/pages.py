"""What was read: pages, their chunks and vectors, each stored once under what it was made from.

Rows here belong to no generation. The first commit of a key wins; a later one uses its row.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.model.pages import Page, Piece
from quire.store.db import bulk, dialect
from quire.store.db.schema.documents import chunks, contents, pages, slices, vectors

p, c, v = pages.c, chunks.c, vectors.c


class StoredPage(NamedTuple):
    """A page that was read before."""

    id: int
    text: str
    language: str
    seconds: float
    via: str


class PageChunks(NamedTuple):
    """A page's text cut into pieces; `digests` name the chunks."""

    pieces: Sequence[Piece]
    digests: Sequence[str]


class ReadPage(NamedTuple):
    """A page that was read now."""

    key: str
    page: Page
    language: str
    seconds: float


def find(conn: sa.Connection, tenant: str, keys: Sequence[str]) -> dict[str, StoredPage]:
    """Return the pages that exist under these keys.

    One that is condemned may be gone before it is used, so it counts as unknown; `put` saves it.
    """
    if not keys:
        return {}
    statement = dialect.cached(conn, "pages.known", lambda: _knowing(conn))
    rows = conn.execute(statement, {"tenant": tenant, **_listed(keys)})
    return {row[0]: StoredPage(*row[1:]) for row in rows}


def _knowing(conn: sa.Connection) -> sa.Select[Any]:
    wanted = _wanted(conn)
    return (
        sa.select(p.key, p.id, p.text, p.language, p.seconds, p.via)
        .join(wanted, wanted.c.value == p.key)
        .where(p.tenant == sa.bindparam("tenant"), p.condemned_at.is_(None))
    )


def _wanted(conn: sa.Connection) -> sa.CTE:
    """Make a table of texts: a file may have more chunks than a statement may have parameters."""
    return dialect.json_rows(conn, "listed", {"value": "text"})


def _listed(values: Iterable[str]) -> dict[str, str]:
    """Encode the parameter of `_wanted`."""
    return {"listed": dialect.encode_rows([[value] for value in sorted(set(values))])}


def _saved(
    conn: sa.Connection, table: sa.Table, name: str, tenant: str, keys: Iterable[str]
) -> dict[str, int]:
    """Lock rows that are about to be used, so that none is collected, and return their ids."""
    statement = dialect.cached(conn, ("saved", table.name), lambda: _saving(conn, table, name))
    rows = conn.execute(statement, {"tenant": tenant, **_listed(keys)}).all()
    condemned = [row.id for row in rows if row.condemned_at is not None]
    if condemned:
        mine = dialect.id_in(conn, table.c.id, "ids")
        conn.execute(
            sa.update(table).where(mine).values(condemned_at=None),
            {"ids": dialect.encode_ids(conn, condemned)},
        )
    return {row[0]: row.id for row in rows}


def _saving(conn: sa.Connection, table: sa.Table, name: str) -> sa.Select[Any]:
    wanted, column = _wanted(conn), table.c[name]
    return (
        sa.select(column, table.c.id, table.c.condemned_at)
        .join(wanted, wanted.c.value == column)
        .where(table.c.tenant == sa.bindparam("tenant"))
        .order_by(table.c.id)
        .with_for_update(read=True, key_share=True, of=table)
    )


def find_by_image(conn: sa.Connection, tenant: str, image_key: str) -> Any | None:
    """Return a page that was recognised from the same picture."""
    return conn.execute(
        sa.select(pages).where(p.tenant == tenant, p.image_key == image_key).limit(1)
    ).one_or_none()


def put(
    conn: sa.Connection, tenant: str, fresh: Sequence[ReadPage], task_id: int
) -> dict[str, int]:
    """Store pages; returns the id under each key, of whoever stored it first."""
    found: dict[str, int] = {}
    keys = {each.key for each in fresh}
    # What was there a moment ago may have been collected since: then it is inserted after all.
    while len(found) < len(keys):
        missing = [each for each in sorted(fresh) if each.key not in found]
        rows = [_row(tenant, each, task_id) for each in missing]
        bulk.insert_missing_blobs(conn, pages, _COLUMNS, rows)
        found = _saved(conn, pages, "key", tenant, keys)
    return found


_COLUMNS = (
    "tenant", "key", "image_key", "text", "words", "width", "height", "via", "language", "label",
    "seconds", "task_id",
)  # fmt: skip


def _row(tenant: str, each: ReadPage, task_id: int) -> list[Any]:
    page = each.page
    return [
        tenant, each.key, page.image_key, dialect.sanitize_text(page.text), page.words, page.width,
        page.height, page.via, each.language, page.label, each.seconds, task_id,
    ]  # fmt: skip


def chunked(conn: sa.Connection, page_ids: Sequence[int], cut_id: int) -> set[int]:
    """Return which of the pages were cut this way before."""
    if not page_ids:
        return set()
    s = slices.c
    return set(
        conn.scalars(
            sa.select(s.page_id).distinct().where(s.page_id.in_(list(page_ids)), s.cut_id == cut_id)
        )
    )


def chunks_without_vector(
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
    """Return which chunks have a vector of the model; one that is condemned may lose its own."""
    if not digests:
        return set()
    statement = dialect.cached(conn, "pages.embedded", lambda: _embedding(conn))
    values = {"tenant": tenant, "model": model_id, **_listed(digests)}
    return set(conn.scalars(statement, values))


def _embedding(conn: sa.Connection) -> sa.Select[Any]:
    wanted = _wanted(conn)
    mine = sa.and_(v.chunk_id == c.id, v.model_id == sa.bindparam("model"))
    # A join or EXISTS would let SQLite begin with every vector of the model.
    vector = sa.select(sa.literal_column("1")).where(mine).correlate(chunks).scalar_subquery()
    return (
        sa.select(c.digest)
        .join(wanted, wanted.c.value == c.digest)
        .where(c.tenant == sa.bindparam("tenant"), c.condemned_at.is_(None), vector.is_not(None))
    )


def _chunk_ids(conn: sa.Connection, tenant: str, digests: Iterable[str]) -> dict[str, int]:
    statement = dialect.cached(conn, "pages.chunk_ids", lambda: _naming(conn))
    rows = conn.execute(statement, {"tenant": tenant, **_listed(digests)})
    return {row.digest: row.id for row in rows}


def _naming(conn: sa.Connection) -> sa.Select[Any]:
    wanted = _wanted(conn)
    return (
        sa.select(c.digest, c.id)
        .join(wanted, wanted.c.value == c.digest)
        .where(c.tenant == sa.bindparam("tenant"))
    )


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
    ids: dict[str, int] = {}
    columns = ("tenant", "digest", "language", "text", "tokens", "task_id")
    made = dialect.fulltext_columns(conn, f"value ->> {len(columns)}")
    # What was there a moment ago may have been collected since: then it is inserted after all.
    while missing := sorted(set(texts) - set(ids)):
        rows = [
            [tenant, name, language, dialect.sanitize_text(text), tokens, task_id]
            + ([dialect.sanitize_text(words[name])] if made else [])
            for name, (text, language, tokens) in ((name, texts[name]) for name in missing)
        ]
        fresh = bulk.insert_missing_returning_ids(conn, chunks, columns, rows, "digest", made)
        if not made:
            told = [(row[0], dialect.sanitize_text(words[row[1]])) for row in fresh]
            dialect.index_texts(conn, told)
        ids.update({row[1]: row[0] for row in fresh})
        if len(ids) < len(texts):
            ids.update(_saved(conn, chunks, "digest", tenant, set(texts) - set(ids)))
    return ids


def put_slices(
    conn: sa.Connection, cut_id: int, cuttings: Mapping[int, PageChunks], ids: Mapping[str, int]
) -> None:
    """Say how pages are cut (page id → cutting)."""
    rows = [
        [page_id, cut_id, ordinal, ids[digest], piece.start, piece.stop]
        for page_id, cutting in sorted(cuttings.items())
        for ordinal, (piece, digest) in enumerate(zip(cutting.pieces, cutting.digests, strict=True))
    ]
    columns = ("page_id", "cut_id", "ordinal", "chunk_id", "start", "stop")
    bulk.insert_missing(conn, slices, columns, rows)


def put_vectors(
    conn: sa.Connection,
    tenant: str,
    model_id: int,
    found: Mapping[str, bytes],
    ids: Mapping[str, int] | None = None,
) -> None:
    """Store vectors, by the digest of their chunk; `ids` are those of chunks known already."""
    if not found:
        return
    ids = dict(ids or {})
    if unknown := found.keys() - ids.keys():
        ids.update(_chunk_ids(conn, tenant, unknown))
    rows = [
        [model_id, ids[digest], vector] for digest, vector in sorted(found.items()) if digest in ids
    ]
    bulk.insert_missing_blobs(conn, vectors, ("model_id", "chunk_id", "vector"), rows)


def put_content(conn: sa.Connection, tenant: str, digest: str, size: int, stored_at: float) -> None:
    """Remember a blob, and clear its condemnation before anyone trusts that the file is there."""
    # Tenants share a file: no row of this one may keep the collector of another's from its end.
    dialect.advisory_lock(conn, blob_lock(digest))
    values = {
        "tenant": tenant, "digest": digest, "size": size, "stored_at": stored_at,
        "condemned_at": None,
    }  # fmt: skip
    dialect.upsert(conn, contents, values, ["tenant", "digest"], ["condemned_at"])


def blob_lock(digest: str) -> str:
    """Name the lock that a put and the collector take before they look at a blob's rows."""
    return f"blob {digest}"


_SIZE = sa.select(contents.c.size).where(
    contents.c.tenant == sa.bindparam("tenant"), contents.c.digest == sa.bindparam("digest")
)


def size_of(conn: sa.Connection, tenant: str, digest: str) -> int | None:
    """Return the size of a blob."""
    found: int | None = conn.scalar(_SIZE, {"tenant": tenant, "digest": digest})
    return found
