"""Earlier work that a task counts on, and that the garbage collector deletes before it writes.

A task may wait a day for the rate limit of an endpoint; the collector's grace is an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from quire.control import doctor
from quire.store.db.schema.documents import vectors
from quire.store.documents import corpora
from quire.store.documents.gc import Collector
from tests import documents as files
from tests.embedding import Server, serving
from tests.shelf import FUSED, Shelf, open_shelf

FAR = {**FUSED, "embedder": "openai:small"}
COMMON = "the clause that both contracts have in common"
OWN = "something only the second one says"


@pytest.fixture
def server() -> Iterator[Server]:
    yield from serving()


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path, server: Server) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path, embed_url=server.url, embed_dimensions=3)


def collected(shelf: Shelf, name: str) -> Callable[[], None]:
    """Return what deletes a document, once, and lets hours pass in which garbage is collected."""
    ids = [shelf.document(name).id]

    def pass_hours() -> None:
        gone, ids[:] = list(ids), []
        if gone:
            shelf.db.write(
                lambda conn, now: corpora.delete_documents(conn, "default", gone, now=now)
            )
            collector = Collector(shelf.db, lambda _: None)
            for _ in range(3):
                collector.round(keep_seconds=0.0)
                shelf.clock.advance(3601)

    return pass_hours


@pytest.mark.parametrize(
    ("first", "small_size"),
    [("a.txt", "9"), ("a.pdf", "9"), ("a.txt", "0")],
    ids=["chunk, one task", "page, one task", "chunk, ranges"],
)
def test_no_document_succeeds_with_a_chunk_without_vector(
    shelf: Shelf, server: Server, first: str, small_size: str
):
    """The chunk of another file is counted on by its text, that of an equal page by its page.

    Ranges count on no page: the page list holds it since they were planned.
    """
    settings = {**FAR, "small_size": small_size, "page_size": "2"}
    shelf.put(first, COMMON if first == "a.txt" else files.pdf(COMMON, "and this"))
    shelf.ingest(settings=settings)
    shelf.put("b.pdf", files.pdf(COMMON, OWN, *[f"page {n}" for n in range(3)]))
    server.asked.clear()
    server.meanwhile = collected(shelf, first)
    shelf.submit(str(shelf.folder / "b.pdf"), settings=settings)
    shelf.drain()
    assert COMMON not in server.asked[0]["input"]
    assert COMMON in [text for asked in server.asked for text in asked["input"]]
    assert shelf.document("b.pdf").state == "success"
    assert {row.attempt for row in shelf.rows("tasks")} == {1}
    assert "failed" not in {row.outcome for row in shelf.rows("attempts")}


def test_doctor_embeds_chunks_that_have_no_vector(shelf: Shelf):
    shelf.put("a.txt", COMMON)
    shelf.ingest(settings=FAR)
    before = shelf.index()
    with shelf.db.begin() as conn:
        conn.execute(sa.delete(vectors))
    names = [each.name for each in doctor.examine(shelf.db, sweep_interval=1e9).violations]
    assert names == ["chunks.vectors"]
    repaired = doctor.repair_derived(shelf.db, shelf.app.settings.for_children)
    assert repaired == {"chunks.vectors": 1}
    assert shelf.index() == before
