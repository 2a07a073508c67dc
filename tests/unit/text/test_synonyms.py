"""Lists of synonyms: CSV with a row for each meaning, bounded, and the lists that Quire has."""

from __future__ import annotations

import pytest

from quire.errors import BadInput
from quire.text import synonyms
from quire.text.query import MAX_SYNONYMS, parse


def test_a_list_has_a_row_for_each_meaning():
    text = '# comment\ncapex, Capital-Expenditure ,"purchases of\tproperty"\n\nFCF,free cash flow\n'
    assert synonyms.parse(text) == [
        ["capex", "capital expenditure", "purchases of property"], ["fcf", "free cash flow"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "0 rows"),
        ("# only a comment", "0 rows"),
        ("alone\n", "line 1 has 1 phrases"),
        ("a,b\nsame,Same\n", "line 2 has 1 phrases"),
        (",".join(f"w{n}" for n in range(21)), "line 1 has 21 phrases"),
        ("a," + " ".join("abcdefghi"), "more than 8 words"),
        ('a,"b\n', "line 1 is not CSV"),
        ("a,b\n" * 2_001, "2,001 rows"),
        ("x" * 100_001, r"100,001 characters \(at most 100,000\)"),
    ],
)
def test_what_is_no_list_is_refused_with_the_line(text: str, reason: str):
    with pytest.raises(BadInput, match=f"synonyms: .*{reason}.* Nothing was changed"):
        synonyms.parse(text)


def test_the_longest_phrase_is_meant():
    lists = [synonyms.index([["sales", "turnover"], ["cost of sales", "cogs"]])]
    assert synonyms.find(["cost", "sales", "growth"], lists) == {"cogs": "cost sales"}
    assert synonyms.find(["sale"], lists) == {"turnover": "sale"}
    assert synonyms.find(["growth"], lists) == {}
    # The first words that ask for a phrase are told.
    twice = [synonyms.index([["a1", "b1", "c1"], ["d1", "b1"]])]
    assert synonyms.find(["a1", "d1"], twice) == {"b1": "a1", "c1": "a1"}


def test_many_synonyms_take_no_place_of_the_words_of_the_query():
    rows = [["cash", *(f"s{row}x{n}" for n in range(19))] for row in range(50)]
    query = parse("cash " + " ".join(f"w{n}" for n in range(31)), ["en"], [synonyms.index(rows)])
    assert [term.synonym_of for term in query.terms].count("cash") == MAX_SYNONYMS
    assert len(query.terms) == 32 + MAX_SYNONYMS
    assert not query.is_cut


def test_the_lists_of_quire_are_lists():
    for name in synonyms.STARTERS:
        rows = synonyms.parse(synonyms.starter(name))
        assert len(rows) > 40
        # No phrase is left with nothing but a letter, which would be asked for by accident.
        keys = synonyms.index(rows)
        assert not [key for key in keys if len("".join(key)) < 2]
    found = synonyms.find(["capex", "2018"], [synonyms.indexed(synonyms.starter("finance"))])
    assert "purchases of property plant and equipment" in found
    with pytest.raises(BadInput, match=r"no list is named 'law' \(known: finance\)"):
        synonyms.starter("law")
