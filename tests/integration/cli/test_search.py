"""`quire search`: what people see, what programs read, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from quire.settings import load
from quire.store import open_database
from tests import reranking
from tests.store.shelf import Shelf
from tests.store.stage import Stage

if TYPE_CHECKING:
    from tests.integration.cli.cli_command import Run

pytest_plugins = ["tests.integration.cli.cli_command"]

HIT = {
    "document_id", "name", "page", "label", "score", "text", "highlights", "boxes", "uri",
    "corpora",
}  # fmt: skip


@pytest.fixture
def quire(quire_on_each: Run) -> Run:
    """All of these on each database."""
    return quire_on_each


@pytest.fixture
def reranker() -> Iterator[reranking.Server]:
    yield from reranking.serving()


@pytest.fixture
def shelf(quire: Run) -> Iterator[Shelf]:
    """The documents of the home that the command works on."""
    db = open_database(load(dict(os.environ)).database)
    db.migrate()
    yield Shelf(Stage(db))
    db.close()


def test_hits_are_listed_with_their_place_and_passage(quire, shelf):
    shelf.file("books/tides.txt", "cover", "Ships wait\x1b[31m for the tide.", model=None)
    ended = quire("search", "waiting", "ships", "--mode", "text")
    assert ended.code == 0
    first, passage, uri, *_ = ended.out.splitlines()
    assert first.split()[:4] == ["1", "tides.txt", "page", "2"]
    assert "score" in first
    assert passage.strip() == "Ships wait [31m for the tide."
    assert uri.strip() == "books/tides.txt"
    assert "1 hit in" in ended.out
    assert "\x1b" not in ended.out


def test_json_has_the_whole_answer(quire, shelf):
    shelf.file("a.txt", "Ships wait for the tide.", corpus="sea", model=None)
    found = quire("search", "tide", "--mode", "text", "--json").json
    assert set(found) == {"items", "mode", "took_ms"}
    [hit] = found["items"]
    assert set(hit) == HIT
    assert hit["corpora"] == ["sea"]
    start, stop = hit["highlights"][0]
    assert hit["text"][start:stop] == "tide"


def test_filters_narrow_the_search(quire, shelf):
    shelf.file("a.txt", "the same tide", corpus="sea", model=None)
    second = shelf.file("b.txt", "the same tide again", model=None)

    def names(*options):
        answer = quire("search", "tide", "--mode", "text", *options, "--json").json
        return [hit["name"] for hit in answer["items"]]

    assert names() == ["a.txt", "b.txt"]
    assert names("--corpus", "sea") == ["a.txt"]
    assert names("--document", second.document_id) == ["b.txt"]
    assert names("--type", "text/plain", "--limit", 1) == ["a.txt"]
    assert names("--where", "year=2024") == []


def test_nothing_found_says_what_to_try(quire, shelf):
    shelf.file("a.txt", "Ships wait for the tide.", model=None)
    ended = quire("search", "zebra", "--document", 1, "--mode", "text")
    assert ended.code == 0
    assert "Nothing found for zebra." in ended.out
    assert "without --corpus" in ended.out
    assert "--mode hybrid" in ended.out


def test_vectors_of_a_model_that_is_not_here_leave_the_words(quire, shelf):
    shelf.file("a.txt", "Ships wait for the tide.")
    found = quire("search", "tide", "--json").json
    assert [hit["name"] for hit in found["items"]] == ["a.txt"]
    assert found["mode"] == "text"
    assert "embedded with toy" in found["note"]
    ended = quire("search", "tide")
    assert "embedded with toy" in ended.err
    assert "a.txt" in ended.out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["  "], "the query is empty"),
        (["x", "--limit", "0"], "not between 1 and 100"),
        (["x", "--mode", "best"], "not one of hybrid, text, vector"),
        (["x", "--corpus", "nowhere"], "corpus nowhere: no such corpus"),
        (["x", "--where", "year"], "not KEY=VALUE"),
        (["x", "--document", "one"], "not a document id"),
    ],
)
def test_what_cannot_be_asked_is_refused(quire, shelf, arguments, reason):
    ended = quire("search", *arguments)
    assert ended.code == 2
    assert reason in ended.err


def test_synonyms_of_a_corpus_are_set_shown_and_removed(quire, shelf, tmp_path):
    shelf.file("a.txt", "purchases of property", corpus="reports", model=None)
    file = tmp_path / "own.csv"
    file.write_text("# ours\ncapex,purchases of property\n")
    assert "reports has no synonyms" in quire("corpus", "synonyms", "reports").out
    assert "1 row of synonyms" in quire("corpus", "synonyms", "reports", str(file)).out
    assert quire("corpus", "synonyms", "reports").out == file.read_text()
    ended = quire("search", "capex", "--mode", "text", "--explain")
    assert "purchases for capex (text, first lines, document)" in ended.out
    shown = quire("corpus", "synonyms", "reports", "--list", "finance", "--json").json
    assert shown["rows"] > 40
    for wrong in ([str(tmp_path / "none.csv")], ["--list", "law"], [str(file), "--remove"]):
        ended = quire("corpus", "synonyms", "reports", *wrong)
        assert ended.code != 0
        assert "Nothing was changed" in ended.err or "known: finance" in ended.err
    assert "0 rows" in quire("corpus", "synonyms", "reports", "--remove").out


def test_a_misspelt_word_is_told(quire, shelf):
    shelf.file("a.txt", "Ships wait for the tide.", model=None)
    ended = quire("search", "shisp", "--mode", "text")
    assert "'ships' was searched for instead" in " ".join(ended.err.split())
    assert "a.txt" in ended.out


def test_hits_are_reranked_by_the_endpoint_of_the_settings(quire, shelf, reranker, monkeypatch):
    shelf.file("first.txt", "tide tide tide", model=None)
    shelf.file("second.txt", "the tide and the moon", model=None)
    reranker.score = lambda text: 0.9 if "moon" in text else 0.1
    monkeypatch.setenv("QUIRE_RERANK_URL", reranker.url)
    assert "QUIRE_RERANK_MODEL" in quire("search", "tide").err
    monkeypatch.setenv("QUIRE_RERANK_MODEL", "cross")
    monkeypatch.setenv("QUIRE_RERANK_KEY", "sk-1")
    ended = quire("search", "tide", "--mode", "text", "--explain")
    assert ended.out.split()[:2] == ["1", "second.txt"]
    assert "reranked 0.90, before at " in ended.out
    assert reranker.headers[0]["Authorization"] == "Bearer sk-1"
    reranker.script.append((500, {}, b"oops"))
    ended = quire("search", "tide", "--mode", "text")
    assert "The reranker failed" in " ".join(ended.err.split())
    assert ended.out.split()[:2] == ["1", "first.txt"]
