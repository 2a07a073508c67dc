"""Misspelt words: exact words win, and nobody learns a word of documents that they may not read."""

from __future__ import annotations

from typing import Any

import pytest

from quire.control import corpora as corpus_verbs
from quire.control import synonyms
from quire.control.caller import Caller
from quire.control.search import search
from quire.errors import BadInput, NotFound
from quire.store.search import search as store
from tests.store.shelf import Shelf
from tests.store.stage import Stage


@pytest.fixture
def shelf(stage: Stage) -> Shelf:
    return Shelf(stage)


def answer(shelf: Shelf, query: str, **how: Any) -> dict[str, Any]:
    return search(shelf.db, shelf.tenant, query, mode="text", **how)


def meant(shelf: Shelf, query: str, **how: Any) -> dict[str, str]:
    found: dict[str, str] = answer(shelf, query, **how).get("did_you_mean", {})
    return found


def names(shelf: Shelf, query: str, **how: Any) -> list[str]:
    return [hit["name"] for hit in answer(shelf, query, **how)["items"]]


def test_words_are_corrected_by_a_letter_two_letters_or_a_space(shelf: Shelf):
    shelf.file("a", "amortization of intangible assets, and the cash flow")
    assert meant(shelf, "amortisation") == {"amortisation": "amortization"}
    assert meant(shelf, "ammortisation") == {"ammortisation": "amortization"}
    assert meant(shelf, "cashflow") == {"cashflow": "cash flow"}
    assert names(shelf, "cashflow") == ["a"]
    assert meant(shelf, "xylophone bzzzq 2o18") == {}


def test_the_word_is_told_as_it_stands_in_the_text(shelf: Shelf):
    shelf.file("a", "the revenues of the year")
    assert meant(shelf, "revenuw") == {"revenuw": "revenues"}


def test_exact_words_win(shelf: Shelf):
    for n in range(5):
        shelf.file(f"many{n}", f"the form of {n}")
    shelf.file("one", "a farm")
    assert names(shelf, "farm") == ["one"]
    assert meant(shelf, "farm form") == {}
    # Also a word that only a name has, in a search of that document alone.
    named = shelf.file("Acme.pdf", "an acre of land")
    assert meant(shelf, "acme land", documents=[named.document_id]) == {}


def test_words_in_quotes_are_searched_for_as_they_are(shelf: Shelf):
    shelf.file("a", "the revenue of the year")
    assert meant(shelf, "revenu3 reveune") == {"reveune": "revenue"}
    assert meant(shelf, '"reveune"') == {}
    found = answer(shelf, '"the revenue" yaer')
    assert (found["did_you_mean"], len(found["items"])) == ({"yaer": "year"}, 1)


def test_a_phrase_stays_a_phrase_if_another_word_is_corrected(shelf: Shelf):
    shelf.file("apart", "the flow of cash in a year")
    shelf.file("together", "cash flow of a year")
    [first, second] = answer(shelf, '"cash flow" yaer', explain=True)["items"]
    assert (first["name"], second["name"]) == ("together", "apart")
    assert [each["word"] for each in second["why"]["words"]] == ["year"]


@pytest.mark.parametrize("few", [True, False])
def test_only_words_in_scope_are_told(shelf: Shelf, monkeypatch, few: bool):
    """Whether the scope is searched exhaustively or by the index of the whole tenant."""
    if not few:
        monkeypatch.setattr(store, "FEW_CHUNKS", -1)
    theirs = Shelf(shelf.stage, tenant="theirs")
    theirs.file("Secretum.pdf", "zanzibar")
    shelf.file("Memo-quagmire.pdf", "porcupine", corpus="memos")
    letters = shelf.file("letter.pdf", "the tide turns", corpus="letters")
    assert meant(shelf, "zanzibra secretun") == {}
    for where in ({"corpus": "letters"}, {"documents": [letters.document_id]}):
        assert meant(shelf, "porcupnie quagmier", **where) == {}
        assert meant(shelf, "tdie", **where) == {"tdie": "tide"}
        # That the tenant has the word elsewhere changes nothing: else its absence would tell.
        assert meant(shelf, "tides porcupine", **where) == {}
    shelf.file("other.pdf", "turms", corpus="memos")
    assert meant(shelf, "turms", corpus="letters") == {"turms": "turns"}
    assert meant(shelf, "turms") == {}
    assert meant(shelf, "porcupnie") == {"porcupnie": "porcupine"}


def test_synonyms_find_pages_in_other_words_and_say_so(shelf: Shelf):
    caller = Caller(shelf.db, shelf.tenant)
    shelf.file("a", "purchases of property and plant", corpus="reports")
    shelf.file("b", "weather report", corpus="reports")
    assert names(shelf, "capex") == []
    csv = "capex,capital expenditure,purchases of property plant\n"
    shown = synonyms.replace(caller, "reports", csv)
    assert shown == synonyms.shown(caller, "reports") == {
        "corpus": "reports", "rows": 1, "csv": csv
    }  # fmt: skip
    for where in ({"corpus": "reports"}, {}):
        [hit] = answer(shelf, "capex", explain=True, **where)["items"]
        assert hit["name"] == "a"
        given = {each["word"]: each for each in hit["why"]["words"]}
        assert given["purchases"]["synonym_of"] == "capex"
        assert "synonym_of" not in answer(shelf, "weather", explain=True)["items"][0]["why"]
    # The words of the query count more, and a synonym is not corrected.
    shelf.file("c", "capex", corpus="reports")
    assert names(shelf, "capex")[0] == "c"
    assert meant(shelf, "capex") == {}
    synonyms.remove(caller, "reports")
    assert names(shelf, "capex") == ["c"]
    assert synonyms.shown(caller, "reports")["rows"] == 0


def test_synonyms_are_those_of_the_corpus_or_of_the_whole_tenant(shelf: Shelf):
    ours, theirs = Caller(shelf.db, shelf.tenant), Caller(shelf.db, "theirs")
    shelf.file("a", "turnover", corpus="reports")
    corpus_verbs.create(ours, "other", {})
    corpus_verbs.create(theirs, "reports", {})
    synonyms.replace(theirs, "reports", "sales,turnover")
    assert names(shelf, "sales") == []
    synonyms.replace(ours, "other", "sales,turnover")
    assert (names(shelf, "sales"), names(shelf, "sales", corpus="reports")) == (["a"], [])
    with pytest.raises(NotFound, match="no such corpus"):
        synonyms.replace(ours, "nowhere", "sales,turnover")


def test_synonyms_of_a_tenant_are_bounded(shelf: Shelf, monkeypatch):
    caller = Caller(shelf.db, shelf.tenant)
    monkeypatch.setattr(synonyms, "MAX_TENANT_CHARS", 30)
    for name in ("one", "two"):
        corpus_verbs.create(caller, name, {})
    synonyms.replace(caller, "one", "sales,turnover,revenue")
    with pytest.raises(BadInput, match=r"more than 30 characters\. Nothing was changed"):
        synonyms.replace(caller, "two", "capex,expenditure")
    assert synonyms.shown(caller, "two")["csv"] == ""
    synonyms.replace(caller, "two", "a,b")
    # What no database can store is replaced.
    synonyms.replace(caller, "two", "a\0b,c\ud800")
