"""Chunk: cut the text of pages into chunks, and prepare their words for the full-text index."""

from dataclasses import dataclass

from quire.ingest.fetch import DocumentFile
from quire.ingest.read import ReadPages
from quire.model.context import TaskContext
from quire.model.pipeline import text_digest
from quire.store.documents import pages
from quire.store.documents.pages import ChunkText, PageChunks
from quire.text import words
from quire.text.chunk import ChunkOptions, split


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of some pages; equal texts are one chunk."""

    by_page: dict[str, PageChunks]  # by page key
    texts: dict[str, ChunkText]  # by digest
    index_words: dict[str, str]  # by digest: the text as the full-text index takes it
    reused_pages: int  # pages that were chunked the same way before


def chunk(ctx: TaskContext, file: DocumentFile, read: ReadPages) -> Chunks:
    """Chunk the pages that were not chunked with these settings before."""
    done = set[int]()
    if read.stored:
        with ctx.database.read() as conn:
            done = pages.chunked(conn, [page.id for page in read.stored.values()], file.cut_id)
    todo = [(key, p.text, p.language) for key, p in read.stored.items() if p.id not in done]
    todo += [(fresh.key, fresh.page.text, fresh.language) for fresh in read.fresh]
    settings = file.pipeline
    options = ChunkOptions(settings.chunk_tokens, settings.overlap, settings.delimiter)
    prepare = words.tsvector_input if file.uses_tsvector else words.fts5_input
    result = Chunks({}, {}, {}, len(done))
    for key, text, language in todo:
        found = split(text, options)
        digests = []
        for piece in found:
            chunk_text = text[piece.start : piece.stop]
            name = text_digest(chunk_text)
            digests.append(name)
            if name not in result.texts:
                result.texts[name] = ChunkText(chunk_text, language, piece.tokens)
                result.index_words[name] = prepare(chunk_text, language)
        result.by_page[key] = PageChunks(found, digests)
    return result
