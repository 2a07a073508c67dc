"""Corpora: named sets of documents with settings of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.control import corpora
from quire.control.caller import Caller
from quire.errors import BadInput, Conflict, NotFound
from quire.model.pipeline import REPEATED, Pipeline, described
from tests.shelf import PLAIN, Shelf, open_shelf


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


def test_a_corpus_is_created_shown_changed_and_deleted(shelf: Shelf):
    caller = shelf.app.caller
    corpora.create(caller, "tales", {"chunk_tokens": "200"})
    shown = corpora.shown(caller, "tales")
    assert shown["settings"] == {"chunk_tokens": 200}
    assert shown["pipeline"]["chunk_tokens"] == 200
    assert shown["pipeline"]["overlap"] == Pipeline().overlap
    assert corpora.change(caller, "tales", {"overlap": "16", "chunk_tokens": "200"}) == ["overlap"]
    assert corpora.shown(caller, "tales")["settings"] == {"chunk_tokens": 200, "overlap": 16}
    assert [each["name"] for each in corpora.listed(caller)] == ["tales"]
    assert corpora.delete(caller, "tales") == 0
    assert corpora.listed(caller) == []


def test_what_cannot_be_is_refused_and_changes_nothing(shelf: Shelf):
    caller = shelf.app.caller
    corpora.create(caller, "tales", {})
    with pytest.raises(Conflict, match="already exists"):
        corpora.create(caller, "tales", {"ocr": "never"})
    for name in ("", " x", "a\nb", "x" * 101):
        with pytest.raises(BadInput, match="expected 1 to 100 printable"):
            corpora.create(caller, name, {})
    for given in ({"chunk_tokens": "1"}, {"colour": "red"}, {"ocr": "maybe"}, {}):
        with pytest.raises(BadInput):
            corpora.change(caller, "tales", given)
    assert corpora.shown(caller, "tales")["settings"] == {}
    for act in (corpora.shown, corpora.delete):
        with pytest.raises(NotFound, match="no such corpus"):
            act(caller, "other")


def test_a_corpus_of_another_tenant_is_not_there(shelf: Shelf):
    corpora.create(shelf.app.caller, "tales", {})
    stranger = Caller(shelf.db, tenant="other")
    assert corpora.listed(stranger) == []
    with pytest.raises(NotFound):
        corpora.change(stranger, "tales", {"ocr": "never"})


def test_documents_follow_the_settings_at_the_next_ingest(shelf: Shelf):
    shelf.put("a.txt", "one two three")
    corpora.create(shelf.app.caller, "tales", PLAIN)
    shelf.ingest(corpus="tales", settings=PLAIN)
    changed = corpora.change(shelf.app.caller, "tales", {"chunk_tokens": "64"})
    again = shelf.ingest(corpus="tales", settings=PLAIN)
    assert shelf.listed(again) == {"settings": 1}
    assert shelf.ledger("a.txt") == {"pages_reused": 1}
    assert "no page is parsed again" in corpora.consequence(changed)
    assert corpora.delete(shelf.app.caller, "tales") == 1
    assert shelf.document("a.txt").state == "success"


def test_every_setting_is_explained_and_its_consequence_known():
    names = {name for name, _, _ in described()}
    assert set(REPEATED) <= names
    listed = corpora.explained({name: default for name, default, _ in described()})
    assert [each[0] for each in listed] == [name for name, _, _ in described()]
    assert "pages are parsed, chunked" in corpora.consequence(["ocr", "overlap"])
    assert "embedded again" in corpora.consequence(["embedder"])
    assert corpora.consequence(["page_size"]).startswith("nothing")
