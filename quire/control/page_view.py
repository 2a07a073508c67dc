"""One page of a document for display: text, word boxes, chunks, highlights."""

import json
from typing import Any

from quire.control import documents
from quire.control.caller import Caller
from quire.parse import file_type
from quire.parse import word_boxes as boxing
from quire.store.reports import documents as reports
from quire.store.search import search
from quire.text import snippets, words

#: Maximum characters of a query to highlight.
LONGEST_QUERY = 500
#: Maximum word boxes that are drawn.
MOST_WORDS = 4000


def page(caller: Caller, document_id: int, number: int, query: str = "") -> dict[str, Any] | None:
    """Return one page with its words, chunks and the matches of a query; or None."""
    with caller.db.read() as conn:
        row = documents.row_of(conn, caller, document_id)
        page = reports.page_of(conn, row, number) if 0 < number < 2**31 else None
        if page is None:
            return None
        chunks = [each._asdict() for each in reports.chunks_of_page(conn, row, number)]
        before, behind = reports.neighbours(conn, row, number)
        spoken = search.languages(conn, caller.tenant) if query.strip() else []
    text, packed = page.text or "", page.words or b""
    marks = _marks(text, query, spoken)
    return {
        "number": number,
        "label": page.label,
        "via": page.via,
        "language": page.language,
        "text": text,
        "word_count": len(text.split()),
        "marks": marks,
        "width": page.width or 0.0,
        "height": page.height or 0.0,
        "words": [word[:4] for word in boxing.unpack(packed, text)[:MOST_WORDS]],
        "hits": [box for mark in marks for box in boxing.boxes(packed, text, *mark)],
        "error": json.loads(page.error)["error"] if page.error else None,
        "chunks": chunks,
        "before": before,
        "behind": behind,
        "has_picture": _has_picture(row, page),
    }


def _marks(text: str, query: str, spoken: list[str]) -> list[tuple[int, int]]:
    asked = query.replace("\0", " ").strip()[:LONGEST_QUERY]
    if not asked or not text:
        return []
    terms = words.query_terms(asked, spoken)
    # A snippet as long as the text returns all matches with their positions in the text.
    return snippets.snippet(text, terms, len(text), spoken)[1]


def _has_picture(row: Any, page: Any) -> bool:
    media_type = row.media_type or row.newest_type or ""
    is_drawn = media_type == file_type.PDF or media_type.startswith("image/")
    return bool(row.digest and is_drawn and (page.width or page.error))
