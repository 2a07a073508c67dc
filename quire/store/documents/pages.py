"""Pages, chunks and vectors: content-addressed, so that equal input is stored once.

They belong to no generation. The first commit of a key wins; later ones use its row. A row that
nothing refers to is marked for garbage collection (`condemned_at`) and unmarked when reused.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.model.pages import ChunkSpan, Page
from quire.store.db import bulk, dialect
from quire.store.db.schema.documents import chunks, contents, pages, slices, vectors
from quire.store.documents import quotas

p, c, v = pages.c, chunks.c, vectors.c


class StoredPage(NamedTuple):
    """A page from earlier work."""

    id: int
    text: str
    language: str
    seconds: float
    via: str


class RecognisedPage(NamedTuple):
    """The result of an earlier OCR."""

    text: str
    words: bytes
    seconds: float


class ChunkText(NamedTuple):
    """The text of a chunk."""

    text: str
    language: str
    tokens: int
    context: str = ""


class PageChunks(NamedTuple):
    """How a page is chunked: where each chunk is in its text, and its digest."""

    pieces: Sequence[ChunkSpan]
    digests: Sequence[str]


class ReadPage(NamedTuple):
    """A page that was just read."""

    key: str
    page: Page
    language: str
    seconds: float
    heads: str | None = None  # the words of its first lines


def find(conn: sa.Connection, tenant: str, keys: Sequence[str]) -> dict[str, StoredPage]:
    """Return the stored pages with these keys.

    Pages marked for garbage collection are left out: they may be deleted before they are used.
    """
    if not keys:
        return {}
    rows = conn.execute(_finding(conn), _keys(tenant, keys))
    return {key: StoredPage(*rest) for key, *rest in rows}


@dialect.statement
def _finding(conn: sa.Connection) -> sa.Select[Any]:
    columns = (p.id, p.text, p.language, p.seconds, p.via)
    return _by_key(conn, p.key, *columns).where(p.condemned_at.is_(None))


def _by_key(
    conn: sa.Connection, key: sa.Column[str], *columns: sa.ColumnElement[Any]
) -> sa.Select[Any]:
    """Select the rows of a tenant whose key is one of `_keys`: any number of them."""
    wanted = dialect.json_rows(conn, "keys", {"value": "text"})
    return (
        sa.select(key, *columns)
        .join(wanted, wanted.c.value == key)
        .where(key.table.c.tenant == sa.bindparam("whose"))
    )


def _keys(tenant: str, values: Iterable[str]) -> dict[str, str]:
    keys = dialect.encode_rows([[value] for value in sorted(set(values))])
    return {"whose": tenant, "keys": keys}


def _lock(
    conn: sa.Connection, key: sa.Column[str], tenant: str, keys: Iterable[str]
) -> dict[str, Any]:
    """Lock rows that are about to be referenced, unmark them, and return key → id."""
    wanted = _keys(tenant, keys)
    rows = conn.execute(_locking(conn, key), wanted).all()
    if any(condemned_at is not None for _, _, condemned_at in rows):
        conn.execute(_unmarking(conn, key), wanted)
    return {name: row_id for name, row_id, _ in rows}


@dialect.statement
def _locking(conn: sa.Connection, key: sa.Column[str]) -> sa.Select[Any]:
    row_id = key.table.c.get("id", key)
    found = _by_key(conn, key, row_id, key.table.c.condemned_at).order_by(row_id)
    return found.with_for_update(read=True, key_share=True, of=key.table)


@dialect.statement
def _unmarking(conn: sa.Connection, key: sa.Column[str]) -> sa.Update:
    marked = _by_key(conn, key).where(key.table.c.condemned_at.is_not(None))
    mine = key.table.c.tenant == sa.bindparam("whose")
    return sa.update(key.table).where(mine, key.in_(marked)).values(condemned_at=None)


def lock_stored(conn: sa.Connection, tenant: str, stored: Mapping[str, StoredPage]) -> bool:
    """Lock pages from earlier work (by key); tell whether all of them are still there."""
    return _lock(conn, p.key, tenant, stored) == {key: page.id for key, page in stored.items()}


def hold_contents(conn: sa.Connection, tenant: str, digests: Sequence[str]) -> set[str]:
    """Lock the rows of blobs and unmark them; return which of them are still there."""
    return set(_lock(conn, contents.c.digest, tenant, digests))


def find_by_image(conn: sa.Connection, tenant: str, image_key: str) -> RecognisedPage | None:
    """Return the text that an earlier OCR found in the same image."""
    row = conn.execute(
        sa.select(p.text, p.words, p.seconds)
        .where(p.tenant == tenant, p.image_key == image_key)
        .limit(1)
    ).one_or_none()
    return None if row is None else RecognisedPage(*row)


def put(
    conn: sa.Connection, tenant: str, fresh: Sequence[ReadPage], task_id: int
) -> dict[str, int]:
    """Store pages; return the id of each key, which another task may have stored first."""
    found: dict[str, int] = {}
    keys = {each.key for each in fresh}
    # A row that existed a moment ago may have been garbage collected: insert it after all.
    while len(found) < len(keys):
        missing = [each for each in sorted(fresh) if each.key not in found]
        rows = [_row(tenant, each, task_id) for each in missing]
        bulk.insert_missing_blobs(conn, pages, _COLUMNS, rows)
        found = _lock(conn, p.key, tenant, keys)
    return found


_COLUMNS = (
    "tenant", "key", "image_key", "text", "words", "blocks", "width", "height", "via", "language",
    "label", "seconds", "heads", "task_id",
)  # fmt: skip


def _row(tenant: str, each: ReadPage, task_id: int) -> list[Any]:
    page = each.page
    heads = None if each.heads is None else dialect.sanitize_text(each.heads)
    return [
        tenant, each.key, page.image_key, dialect.sanitize_text(page.text), page.words, page.blocks,
        page.width, page.height, page.via, each.language, page.label, each.seconds, heads, task_id,
    ]  # fmt: skip


def structures(conn: sa.Connection, page_ids: Sequence[int]) -> dict[int, tuple[bytes, bytes]]:
    """Return the packed word boxes and blocks of pages, by id."""
    if not page_ids:
        return {}
    rows = conn.execute(sa.select(p.id, p.words, p.blocks).where(p.id.in_(list(page_ids))))
    return {page_id: (words or b"", blocks or b"") for page_id, words, blocks in rows}


def chunked(conn: sa.Connection, page_ids: Sequence[int], cut_id: int) -> set[int]:
    """Return which of the pages are chunked with these settings."""
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
    """Return (digest, text) of the chunks of pages that have no vector of the model."""
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
    return [(row.digest, row.text) for row in rows]


def embedded(conn: sa.Connection, tenant: str, model_id: int, digests: Sequence[str]) -> set[str]:
    """Return which chunks have a vector of the model and are not marked for collection."""
    if not digests:
        return set()
    return set(conn.scalars(_embedded(conn), {"model": model_id, **_keys(tenant, digests)}))


@dialect.statement
def _embedded(conn: sa.Connection) -> sa.Select[Any]:
    mine = sa.and_(v.chunk_id == c.id, v.model_id == sa.bindparam("model"))
    # A scalar subquery: with a join or EXISTS, SQLite starts from all vectors of the model.
    vector = sa.select(sa.literal_column("1")).where(mine).correlate(chunks).scalar_subquery()
    return _by_key(conn, c.digest).where(c.condemned_at.is_(None), vector.is_not(None))


def put_chunks(
    conn: sa.Connection,
    tenant: str,
    texts: Mapping[str, tuple[str, str, int] | ChunkText],
    words: Mapping[str, str],
    task_id: int,
) -> dict[str, int]:
    """Store chunks (digest → `ChunkText`), and index new ones; return their ids.

    `words` are the texts as the full-text index takes them.
    """
    ids: dict[str, int] = {}
    columns = ("tenant", "digest", "language", "text", "tokens", "context", "task_id")
    made = dialect.fulltext_columns(conn, f"value ->> {len(columns)}")
    # A row that existed a moment ago may have been garbage collected: insert it after all.
    while missing := sorted(set(texts) - set(ids)):
        rows = [
            [tenant, name, each.language, dialect.sanitize_text(each.text), each.tokens]
            + [dialect.sanitize_text(each.context) or None, task_id]
            + ([dialect.sanitize_text(words[name])] if made else [])
            for name, each in ((name, ChunkText(*texts[name])) for name in missing)
        ]
        fresh = bulk.insert_missing_returning_ids(conn, chunks, columns, rows, "digest", made)
        if not made:
            dialect.index_texts(
                conn,
                tenant,
                [(chunk_id, dialect.sanitize_text(words[digest])) for chunk_id, digest in fresh],
            )
        ids.update({digest: chunk_id for chunk_id, digest in fresh})
        if len(ids) < len(texts):
            ids.update(_lock(conn, c.digest, tenant, set(texts) - set(ids)))
    return ids


def put_slices(
    conn: sa.Connection, cut_id: int, by_page: Mapping[int, PageChunks], ids: Mapping[str, int]
) -> None:
    """Store how pages are chunked (by page id)."""
    rows = [
        [page_id, cut_id, ordinal, ids[digest], piece.start, piece.stop]
        for page_id, found in sorted(by_page.items())
        for ordinal, (piece, digest) in enumerate(zip(found.pieces, found.digests, strict=True))
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
    """Store vectors by the digest of their chunk; `ids` has the chunks whose id is known."""
    if not found:
        return
    ids = dict(ids or {})
    if unknown := found.keys() - ids.keys():
        ids.update(_lock(conn, c.digest, tenant, unknown))
    rows = [
        [model_id, ids[digest], vector] for digest, vector in sorted(found.items()) if digest in ids
    ]
    bulk.insert_missing_blobs(conn, vectors, ("model_id", "chunk_id", "vector"), rows)


def put_content(conn: sa.Connection, tenant: str, digest: str, size: int, stored_at: float) -> None:
    """Record a blob, and unmark it for collection before anyone relies on its file."""
    # Tenants share the file: the lock orders this with the collection of another tenant's row.
    dialect.advisory_lock(conn, blob_lock(digest))
    values = {
        "tenant": tenant, "digest": digest, "size": size, "stored_at": stored_at,
        "condemned_at": None,
    }  # fmt: skip
    dialect.upsert(conn, contents, values, ["tenant", "digest"], ["condemned_at"])
    quotas.require(conn, tenant, "bytes", added=size)


def blob_lock(digest: str) -> str:
    """Return the name of the lock for all rows of a blob."""
    return f"blob {digest}"


_SIZE = sa.select(contents.c.size).where(
    contents.c.tenant == sa.bindparam("tenant"), contents.c.digest == sa.bindparam("digest")
)


def size_of(conn: sa.Connection, tenant: str, digest: str) -> int | None:
    """Return the size of a blob."""
    found: int | None = conn.scalar(_SIZE, {"tenant": tenant, "digest": digest})
    return found
