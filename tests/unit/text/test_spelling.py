"""Guesses at misspelt words: bounded, and near."""

from __future__ import annotations

import pytest

from quire.text import spelling


@pytest.mark.parametrize("typed", ["reveune", "revnue", "revenuee", "revenie", "tevenue"])
def test_one_letter_may_be_wrong(typed: str):
    assert "revenue" in spelling.one_edit(typed)
    assert typed not in spelling.one_edit(typed)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ammortisation", "amortization"), ("recieveables", "receivables"),
        ("expendatures", "expenditures"),
    ],
)  # fmt: skip
def test_a_long_word_may_have_two_likely_mistakes(typed: str, meant: str):
    assert meant in [*spelling.one_edit(typed), *spelling.two_edits(typed)]


def test_two_words_may_be_written_as_one():
    assert ("cash", "flow") in spelling.splits("cashflow")
    assert spelling.splits("tesla") == []


def test_guesses_are_bounded():
    longest = "abcdefghijklmnopqrstuvwxyz"[: spelling.LONGEST]
    assert len(spelling.one_edit(longest)) < 1_500
    assert all(len(spelling.two_edits(longest[:size])) < 5_000 for size in range(25))
    assert spelling.two_edits("short") == []
    assert not spelling.is_candidate(longest + "x")
    assert not spelling.is_candidate("a1b2")
    assert not spelling.is_candidate("abc")
    assert not spelling.is_candidate("年度报告")
    assert spelling.is_candidate("отчёт")
