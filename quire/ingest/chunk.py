"""Chunk: cut the text of pages into chunks, and prepare their words for the full-text index."""

from dataclasses import dataclass

from quire.ingest.fetch import DocumentFile
from quire.ingest.read import ReadPages
from quire.model.blocks import PageText, unpack
from quire.model.context import TaskContext
from quire.model.pages import ChunkSpan, Page
from quire.model.pipeline import chunk_digest, searchable
from quire.parse import word_boxes
from quire.store.documents import pages
from quire.store.documents.pages import ChunkText, PageChunks
from quire.text import structured_chunk, words
from quire.text.chunk import ChunkOptions


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of some pages; equal texts are one chunk."""

    by_page: dict[str, PageChunks]  # by page key
    texts: dict[str, ChunkText]  # by digest
    index_words: dict[str, str]  # by digest: the text as the full-text index takes it
    reused_pages: int  # pages that were chunked the same way before


def chunk(ctx: TaskContext, file: DocumentFile, read: ReadPages) -> Chunks:
    """Chunk the pages that were not chunked with these settings before."""
    done, stored = set[int](), dict[int, tuple[bytes, bytes]]()
    if read.stored:
        with ctx.database.read() as conn:
            done = pages.chunked(conn, [page.id for page in read.stored.values()], file.cut_id)
            rest = [page.id for page in read.stored.values() if page.id not in done]
            stored = pages.structures(conn, rest)
    todo = [
        (key, Page(0, page.text, stored[page.id][0], blocks=stored[page.id][1]), page.language)
        for key, page in read.stored.items()
        if page.id in stored
    ]
    todo += [(fresh.key, fresh.page, fresh.language) for fresh in read.fresh]
    settings = file.pipeline
    options = ChunkOptions(settings.chunk_tokens, settings.overlap, settings.delimiter)
    prepare = words.tsvector_input if file.uses_tsvector else words.fts5_input
    result = Chunks({}, {}, {}, len(done))
    for key, page, language in todo:
        found = _split(page, options)
        digests = []
        for piece in found:
            chunk_text = page.text[piece.start : piece.stop]
            name = chunk_digest(chunk_text, piece.context)
            digests.append(name)
            if name not in result.texts:
                result.texts[name] = ChunkText(chunk_text, language, piece.tokens, piece.context)
                indexed = searchable(chunk_text, piece.context)
                result.index_words[name] = prepare(indexed, language)
        result.by_page[key] = PageChunks(found, digests)
    return result


def _split(page: Page, options: ChunkOptions) -> list[ChunkSpan]:
    spans = word_boxes.word_spans(page) if page.blocks else []
    found = unpack(page.blocks, len(spans))
    return structured_chunk.split(PageText(page.text, spans), found, options)
