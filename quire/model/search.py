"""Records of a search: the embedding model, the scope, and the results."""

from typing import NamedTuple


class Model(NamedTuple):
    """An embedding model as registered in the database."""

    id: int
    name: str
    dimensions: int


class Scope(NamedTuple):
    """What to search: the live documents of a tenant, or some of them."""

    tenant: str
    corpus_id: int | None = None
    documents: tuple[int, ...] = ()
    where: tuple[tuple[str, str], ...] = ()  # required metadata entries
    media_type: str | None = None
    #: The rest of the tenant must not show, not in a score either: all is counted within the scope.
    is_closed: bool = False


class ChunkLocation(NamedTuple):
    """A chunk's location in a document."""

    chunk_id: int
    document_id: int
    name: str
    uri: str
    page: int
    label: str | None
    text: str  # of the chunk
    start: int  # of the chunk in the page's text
    page_text: str | None  # None if the page has no boxes
    words: bytes | None  # packed boxes
    corpora: tuple[str, ...] = ()


class QueryTerms(NamedTuple):
    """The terms of a query, in the syntax of each full-text index."""

    fts5: tuple[str, ...]
    tsquery: tuple[str, ...]


class IndexHits(NamedTuple):
    """Chunks found by an index, best first, with their scores."""

    ranked: list[tuple[int, float]]
    is_complete: bool  # no more matches exist
