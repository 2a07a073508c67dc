"""Queries that people paste: operators, quotes, ten thousand characters, small words, a year."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from quire.control.search import search
from quire.text.query import MAX_CHARS
from tests.store.search.test_search import Toy
from tests.store.shelf import Shelf
from tests.store.stage import Stage


@pytest.fixture
def shelf(stage: Stage) -> Shelf:
    found = Shelf(stage)
    found.file("alpha", "alpha leads\nthe report of 2018")
    found.file("beta", "beta follows alpha")
    found.file("both", "alpha and beta stand together")
    return found


def answer(shelf: Shelf, query: str, mode: str = "text", **how: Any) -> dict[str, Any]:
    return search(shelf.db, shelf.tenant, query, mode=mode, embedder=lambda name: Toy(), **how)


def names(shelf: Shelf, query: str, **how: Any) -> list[str]:
    return [hit["name"] for hit in answer(shelf, query, **how)["items"]]


@pytest.mark.parametrize(
    "query",
    [
        "alpha AND beta", "alpha -beta", "alpha NOT beta", "(alpha beta", "alpha) OR (beta",
        "alpha* beta*", 'alpha "beta', '"alpha" "beta"', "alpha & !beta", "alpha <-> beta",
        "^alpha beta:*", "alpha\\beta", "{alpha beta}", "alpha'beta'", "words:alpha beta",
        'NEAR("alpha" "beta", 3)', "alpha | beta;--",
    ],
)  # fmt: skip
def test_operators_have_no_meaning(shelf: Shelf, query: str):
    assert sorted(names(shelf, query)) == ["alpha", "beta", "both"]
    assert names(shelf, query)[0] in ("both", "beta")


def test_words_in_quotes_are_adjacent_and_in_order(shelf: Shelf):
    assert names(shelf, '"beta stand"') == ["both"]
    assert names(shelf, "“beta stand” «follows alpha»") in (["both", "beta"], ["beta", "both"])
    assert names(shelf, '"stand beta"') == []
    assert names(shelf, '"" alpha ""')[0] == "alpha"
    # A line break is no border, but a chunk is.
    assert names(shelf, '"leads the"') == []


@pytest.mark.parametrize("mode", ["text", "hybrid"])
def test_a_query_of_ten_thousand_characters_is_answered(shelf: Shelf, mode: str):
    choose = random.Random(14)
    words = [f"{choose.choice('bcdfg')}{'aeiou'[n % 5]}{n}" for n in range(2_000)]
    for long in (
        " ".join(words), '"' + " ".join(words) + '"', '"' * MAX_CHARS, "alpha " * 1_666,
        '"alpha beta" ' * 769, "(" * MAX_CHARS, "x" * MAX_CHARS, "名" * MAX_CHARS,
        "\u0301" * MAX_CHARS, "alphq " * 1_600, "fy18 " * 2_000, "-alpha " * 1_400,
    ):  # fmt: skip
        began = time.process_time()
        found = answer(shelf, long[:MAX_CHARS], mode)
        assert time.process_time() - began < 10
        assert isinstance(found["items"], list)
    assert names(shelf, "alpha " * 1_666) == names(shelf, "alpha")
    cut = answer(shelf, f"alpha {' '.join(words)}"[:MAX_CHARS], mode)
    assert "Only the first 32 words" in cut["note"]
    assert {hit["name"] for hit in cut["items"]} >= {"alpha", "beta", "both"}


def test_small_words_are_searched_for_if_there_are_no_others(shelf: Shelf):
    assert names(shelf, "the of") == ["alpha"]
    assert names(shelf, "and") == ["both"]
    assert names(shelf, "what is the of") == ["alpha"]


def test_a_year_alone_is_a_word(shelf: Shelf):
    shelf.file("Acme_2018.pdf", "sales")
    shelf.file("Acme_2017.pdf", "sales of 2017")
    for query in ("2018", "FY18", "fy2018?", '"2018"'):
        assert set(names(shelf, query)) == {"alpha", "Acme_2018.pdf"}, query
    assert answer(shelf, "2016")["items"] == []
    assert "did_you_mean" not in answer(shelf, "2016")


def test_a_query_without_a_match_says_so(shelf: Shelf):
    for query in ("Jahresabschluss Umsatz", "отчёт", "年度报告", "qqqqq"):
        found = answer(shelf, query)
        assert (found["items"], found["note"]) == ([], "No document contains these words.")
    for query in ("?!.,", "()", "-"):
        found = answer(shelf, query)
        assert (found["items"], found["note"]) == ([], "The query has no words.")
        assert answer(shelf, query, "hybrid")["note"] == "The query has no words."
