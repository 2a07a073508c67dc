"""Re-indexing a document while somebody else deletes or re-indexes it (PostgreSQL)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quire.control import documents
from quire.errors import Conflict, NotFound
from tests.shelf import Shelf


@pytest.fixture
def shelf(pg_url: str, tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path / "home", tmp_path / "in", pg_url)
    shelf.put("a.txt", "words")
    shelf.ingest()
    yield shelf
    shelf.drain()
    shelf.assert_healthy()
    shelf.close()


def reindex_beside(shelf: Shelf, act: Callable[[int], Any]) -> int:
    """Re-index; before the document and its tasks are locked, `act` is committed."""
    document_id = shelf.document("a.txt").id
    held, released = threading.Event(), threading.Event()

    def hold(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
        is_first = "tasks.document_id" in statement and not held.is_set()
        if is_first and threading.current_thread() is not threading.main_thread():
            held.set()
            assert released.wait(10)

    sa.event.listen(shelf.db.engine, "before_cursor_execute", hold)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(documents.reindex, shelf.app.caller, document_id, {})
        try:
            assert held.wait(10)
            act(document_id)
        finally:
            released.set()
            running.exception(10)
            sa.event.remove(shelf.db.engine, "before_cursor_execute", hold)
        return running.result()


def test_a_document_that_is_deleted_meanwhile_does_not_come_back(shelf: Shelf):
    with pytest.raises(NotFound):
        reindex_beside(shelf, lambda each: documents.delete(shelf.app.caller, each))
    assert (shelf.rows("documents"), shelf.rows("generations")) == ([], [])
    assert len(shelf.rows("jobs")) == 1


def test_a_document_that_another_reindexes_meanwhile_is_left_to_it(shelf: Shelf):
    other = replace(shelf.app.caller, user="bob")  # each user's jobs are submitted one by one
    with pytest.raises(Conflict, match="queued by job"):
        reindex_beside(shelf, lambda each: documents.reindex(other, each, {}))
    assert (shelf.document("a.txt").state, shelf.document("a.txt").generation) == ("queued", 2)
