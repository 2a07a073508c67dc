"""A message that is deleted takes the files inside it along, and only those."""

from __future__ import annotations

from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest
import sqlalchemy as sa

from quire.control import documents, jobs
from quire.errors import Conflict
from quire.store.db.schema.documents import documents as documents_table
from quire.store.documents import corpora
from tests.shelf import PLAIN, Shelf, open_shelf


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


def letter(words: str, *attached: str) -> EmailMessage:
    made = EmailMessage()
    made["Subject"] = words
    made.set_content(words)
    for each in attached:
        made.add_attachment(each.encode(), "text", "plain", filename=f"{each.split()[0]}.txt")
    return made


def chain() -> bytes:
    """A letter with a file and a letter inside, which has a file inside."""
    outer = letter("outer words", "apple words")
    outer.add_attachment(letter("inner", "pear words"))
    return outer.as_bytes()


def names(shelf: Shelf) -> list[str]:
    return sorted(row.name for row in shelf.rows("documents"))


def test_the_files_inside_a_message_go_with_it_to_any_depth(shelf: Shelf):
    shelf.put("mail.eml", chain())
    shelf.put("other.eml", letter("another", "plum words").as_bytes())
    shelf.put("apple.txt", "apple words")  # the same bytes at a place of their own
    shelf.ingest()
    all_names = ["apple.txt", "apple.txt", "inner.eml", "mail.eml", "other.eml"]
    assert names(shelf) == [*all_names, "pear.txt", "plum.txt"]
    documents.delete(shelf.app.caller, shelf.document("mail.eml").id)
    assert names(shelf) == ["apple.txt", "other.eml", "plum.txt"]
    assert shelf.document("apple.txt").parent_id is None
    assert shelf.document("plum.txt").parent_id == shelf.document("other.eml").id
    assert shelf.is_found("apple words")
    assert not shelf.is_found("pear words")
    left = {row.id for row in shelf.rows("documents")}
    for table in ("leaves", "generations"):
        assert {row.document_id for row in shelf.rows(table)} == left


def test_a_message_stays_while_a_file_inside_it_is_worked_on(shelf: Shelf):
    shelf.put("mail.eml", chain())
    job_id = shelf.submit()
    shelf.step(2)  # the listing, the message
    assert shelf.document("mail.eml").state == "success"
    before = names(shelf)
    with pytest.raises(Conflict, match=f"a file inside it.*quire job cancel {job_id}"):
        documents.delete(shelf.app.caller, shelf.document("mail.eml").id)
    assert names(shelf) == before == ["apple.txt", "inner.eml", "mail.eml"]
    shelf.drain()
    documents.delete(shelf.app.caller, shelf.document("mail.eml").id)
    assert names(shelf) == []


def test_a_file_that_another_source_lists_stays_as_its_own_document(shelf: Shelf):
    shelf.put("mail.eml", chain())
    shelf.ingest()
    inner = shelf.document("inner.eml").id
    with shelf.db.begin() as conn:
        mine = documents_table.c.id == inner
        conn.execute(sa.update(documents_table).where(mine).values(source="plugin:letters"))
    documents.delete(shelf.app.caller, shelf.document("mail.eml").id)
    assert names(shelf) == ["inner.eml", "pear.txt"]
    assert shelf.document("inner.eml").parent_id is None
    assert shelf.document("pear.txt").parent_id == inner


def test_a_message_that_its_source_lost_takes_its_files_along(shelf: Shelf):
    path = shelf.put("mail.eml", chain())
    shelf.put("kept.txt", "kept")
    settings = {**PLAIN, "propagate_deletions": "true"}
    shelf.ingest(settings=settings)
    path.unlink()
    shelf.clock.advance(5)
    assert shelf.listed(shelf.ingest(settings=settings))["gone"] == 1
    assert names(shelf) == ["kept.txt"]


def test_what_was_at_work_when_its_source_lost_it_goes_at_the_next_listing(shelf: Shelf):
    path = shelf.put("a.txt", "one")
    settings = {**PLAIN, "propagate_deletions": "true"}
    jobs.pause(shelf.app.caller, "ingest.document")
    shelf.ingest(settings=settings)
    path.unlink()
    shelf.clock.advance(5)
    assert shelf.listed(shelf.ingest(settings=settings)) == {"gone": 1}
    assert names(shelf) == ["a.txt"]
    jobs.unpause(shelf.app.caller, "ingest.document")
    shelf.drain()
    assert shelf.listed(shelf.ingest(settings=settings)) == {}
    assert names(shelf) == []


def test_more_documents_go_than_a_statement_has_parameters(shelf: Shelf):
    shelf.put("a.txt", "one")
    shelf.ingest()
    went = shelf.db.write(
        lambda conn, now: corpora.delete_documents(conn, "default", range(1, 70_001), now=now)
    )
    assert went == [1]
    assert (
        shelf.db.write(lambda conn, now: corpora.delete_documents(conn, "default", went, now=now))
        == []
    )
