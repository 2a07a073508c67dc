"""The content of a document: original file, thumbnail, pages, page images, chunks."""

import re
from typing import Any, NamedTuple

from quire.control.caller import Caller
from quire.control.documents import no_page, row_of
from quire.errors import BadInput, Gone, NotFound
from quire.parse import file_type, render, word_boxes
from quire.store.documents import pages as stored
from quire.store.reports import documents as reports
from quire.store.search import search
from quire.text import snippets, words

#: Maximum characters of a query to highlight.
LONGEST_QUERY = 500
#: Maximum word boxes that are drawn.
MOST_WORDS = 4000
_CURSOR = re.compile(r"(\d{1,9})\.(\d{1,9})")


class Kept(NamedTuple):
    """A blob of a document."""

    digest: str
    size: int
    name: str
    media_type: str | None


def original_of(caller: Caller, document_id: int) -> Kept:
    """Return the blob of the original file."""
    with caller.db.read() as conn:
        row = row_of(conn, caller, document_id)
        size = stored.size_of(conn, caller.tenant, row.digest) if row.digest else None
    if size is None:
        raise Gone(
            f"document {document_id}: its file is not stored (it is {row.state}). Wait until it is "
            f"fetched, or index it: quire document reindex {document_id}"
        )
    return Kept(row.digest, size, row.name, row.media_type or row.newest_type)


def thumbnail_of(caller: Caller, document_id: int) -> Kept:
    """Return the blob of the thumbnail of page 1."""
    with caller.db.read() as conn:
        row = row_of(conn, caller, document_id)
        size = stored.size_of(conn, caller.tenant, row.thumbnail) if row.thumbnail else None
    if size is None:
        raise NotFound(f"document {document_id}: it has no thumbnail.")
    return Kept(row.thumbnail, size, "thumbnail.jpg", "image/jpeg")


def page(caller: Caller, document_id: int, number: int) -> dict[str, Any]:
    """Return a page with its text and the bounding boxes of its words."""
    with caller.db.read() as conn:
        row = row_of(conn, caller, document_id)
        one = reports.page_of(conn, row, number)
    if one is None:
        raise no_page(document_id, number)
    text = one.text or ""
    boxes = [word._asdict() for word in word_boxes.unpack(one.words or b"", text)]
    return {**reports.page_json(one), "text": text, "words": boxes}


def chunks(caller: Caller, document_id: int, *, limit: int, cursor: str | None) -> dict[str, Any]:
    """List the chunks of a document in text order."""
    at = (0, -1)
    if cursor is not None:
        match = _CURSOR.fullmatch(cursor)
        if match is None:
            raise BadInput(f"cursor: {cursor[:40]!r} is not the `next` of an earlier page.")
        at = (int(match[1]), int(match[2]))
    with caller.db.read() as conn:
        row = row_of(conn, caller, document_id)
        return reports.page_of_chunks(conn, row, limit=limit, cursor=at)


def drawable(caller: Caller, document_id: int, number: int) -> Kept:
    """Return the blob from which the image of a page is rendered."""
    found = original_of(caller, document_id)
    if not render.can_render(found.media_type):
        raise NotFound(
            f"document {document_id}: its type ({found.media_type}) has no page images. "
            "Its text is available."
        )
    with caller.db.read() as conn:
        last = row_of(conn, caller, document_id).pages
    if last is not None and number > last:
        raise no_page(document_id, number)
    return found


def displayed_page(
    caller: Caller, document_id: int, number: int, query: str = ""
) -> dict[str, Any] | None:
    """Return one page with its words, chunks and the matches of a query; or None."""
    with caller.db.read() as conn:
        row = row_of(conn, caller, document_id)
        page = reports.page_of(conn, row, number)
        if page is None:
            return None
        chunks = [each._asdict() for each in reports.chunks_of_page(conn, row, number)]
        before, behind = reports.neighbours(conn, row, number)
        spoken = search.languages(conn, caller.tenant) if query.strip() else []
    text, packed = page.text or "", page.words or b""
    marks = _marks(text, query, spoken)
    media_type = row.media_type or row.newest_type or ""
    is_drawn = media_type == file_type.PDF or media_type.startswith("image/")
    shown = reports.page_json(page)
    return {
        **shown,
        "text": text,
        "word_count": shown["words"],
        "marks": marks,
        "width": page.width or 0.0,
        "height": page.height or 0.0,
        "words": [word[:4] for word in word_boxes.unpack(packed, text)[:MOST_WORDS]],
        "hits": [box for mark in marks for box in word_boxes.boxes(packed, text, *mark)],
        "chunks": chunks,
        "before": before,
        "behind": behind,
        "has_picture": bool(row.digest and is_drawn and (page.width or page.error)),
    }


def _marks(text: str, query: str, spoken: list[str]) -> list[tuple[int, int]]:
    asked = query.replace("\0", " ").strip()[:LONGEST_QUERY]
    if not asked or not text:
        return []
    terms = words.query_terms(asked, spoken)
    # A snippet as long as the text returns all matches with their positions in the text.
    return snippets.snippet(text, terms, len(text), spoken)[1]
