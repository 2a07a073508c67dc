"""What a search is about: the model, where to look, and what was found."""

from typing import NamedTuple, Protocol


class Model(NamedTuple):
    """An embedding model as the database knows it."""

    id: int
    name: str
    dimensions: int


class Scope(NamedTuple):
    """Where to look: the live documents of a tenant, or some of them."""

    tenant: str
    corpus_id: int | None = None
    documents: tuple[int, ...] = ()
    where: tuple[tuple[str, str], ...] = ()  # entries that the metadata must have
    media_type: str | None = None

    @property
    def is_narrow(self) -> bool:
        """Tell whether some live documents are left out."""
        return self != Scope(self.tenant)


class ChunkLocation(NamedTuple):
    """A chunk where it stands in a document."""

    chunk_id: int
    document_id: int
    name: str
    uri: str
    page: int
    label: str | None
    text: str  # of the chunk
    start: int  # of the chunk in the page's text
    page_text: str | None  # None where the page has no boxes
    words: bytes | None  # packed boxes
    corpora: tuple[str, ...] = ()


class QueryTerms(NamedTuple):
    """What a query asks for: one expression per term, as each full-text index takes it."""

    fts5: tuple[str, ...]
    tsquery: tuple[str, ...]


class IndexHits(NamedTuple):
    """Chunks that an index found, best first, with their scores."""

    ranked: list[tuple[int, float]]
    is_all: bool  # there is nothing more to find


class TermCounts(Protocol):
    """How often a text has words."""

    length: int  # in words

    def times(self, form: str) -> int:
        """Count a word, a prefix or a phrase."""
        ...
