"""A query becomes terms: phrases, fields, years, joined words, and no question words."""

from __future__ import annotations

import time

import pytest

from quire.errors import BadInput
from quire.text import synonyms
from quire.text.query import MAX_CHARS, MAX_TERMS, SYNONYM_WEIGHT, parse


def words(text: str, **how) -> list[str]:
    return [term.word for term in parse(text, ["en"], **how).terms]


def test_question_words_are_left_out_if_others_remain():
    assert words("What was the capital expenditure? Please round.") == ["capital", "expenditure"]
    assert words("how") == ["how"]
    assert words("the of") == ["the", "of"]
    assert words("how the") == ["the"]
    assert words("") == []


def test_fiscal_years_also_ask_for_the_year():
    assert words("sales FY2018") == ["sales", "fy2018", "2018"]
    assert words("CY18 FY99") == ["cy18", "2018", "fy99", "1999"]
    assert words("2018") == ["2018"]
    assert words("fy201 fyx") == ["fy201", "fyx"]


def test_phrases_and_fields_are_parsed():
    query = parse('Name:"Acme Works" year:FY18 type:pdf "net income" growth', ["en"])
    assert query.names == ("acm", "work", "2018")
    assert query.media_types == ("pdf",)
    assert [term.forms for term in query.terms] == [("net incom",), ("growth",)]
    assert words("http://a.b note:this type: name:") == ["http", "b", "note", "type", "name"]
    with pytest.raises(BadInput, match="year:soon is not a year"):
        parse("year:soon")


def test_operators_are_words_or_nothing():
    assert words('AND NEAR( * ^ " sales') == ["near", "sales"]


def test_neighbours_are_joined_for_names():
    assert parse("Acme Works Group", ["en"]).joined == ("acmework", "worksgroup", "acmeworksgroup")


def test_synonyms_ask_for_the_other_phrases_at_a_lower_weight():
    lists = [synonyms.index([["capital expenditure", "capex", "purchases of property"]])]
    found = parse("the capital expenditures of Acme", ["en"], lists).terms
    assert [(term.word, term.weight) for term in found] == [
        ("capital", 1.0), ("expenditures", 1.0), ("acme", 1.0), ("capex", SYNONYM_WEIGHT),
        ("purchases", SYNONYM_WEIGHT), ("property", SYNONYM_WEIGHT),
    ]  # fmt: skip
    assert [term.synonym_of for term in found][2:] == ["", *["capital expenditures"] * 3]
    assert words("capital of expenditure", lists=lists)[-1] == "property"
    assert words("capital gains", lists=lists) == ["capital", "gains"]
    assert not parse("capital gains", ["en"], lists).is_cut


def test_a_long_query_is_cut_and_a_longer_one_refused_in_linear_time():
    query = parse(" ".join(f"w{n}" for n in range(2_000))[:MAX_CHARS], ["en"])
    assert len(query.terms) == MAX_TERMS
    assert query.is_cut
    with pytest.raises(BadInput, match="at most 10,000"):
        parse("x" * (MAX_CHARS + 1))
    for hostile in ('"' * MAX_CHARS, "name:" * 2_000, 'name:"' * 1_600, "a " * 5_000, "fy" * 5_000):
        began = time.process_time()
        parse(hostile, ["en", "de"])
        assert time.process_time() - began < 1.0
