"""The searchable fields: names split into words, first lines, words by number of pages."""

from __future__ import annotations

from quire.text import fields
from quire.text.fields import PageWords, heads, name_parts, name_words


def test_names_are_split_at_case_digits_and_punctuation():
    found = name_parts("AcmeWorks_2020Q2_10-K")
    assert {"acmeworks", "acme", "works", "2020q2", "2020", "q", "2", "q2", "10", "k", "10k"} <= {
        *found
    }
    assert len(found) == len(set(found))
    assert name_parts("IBMReport") == ["ibmreport", "ibm", "report"]
    assert name_parts("über_Größe-мир") == ["über", "größe", "мир"]
    assert name_parts("___") == []


def test_the_words_of_a_name_have_no_suffix_but_the_metadata():
    assert name_words("Tides.pdf", {"title": "Annual Reports", "year": 2018, "x": [1]}) == (
        "tide annual report 2018"
    )
    assert name_words(".profile", {}) == "profil"
    assert len(name_words(" ".join(f"w{n}" for n in range(9_000)), {}).split()) == 200


def test_heads_are_the_first_four_lines_that_are_not_empty():
    assert heads("\n \n Cash Flows\n\n2018\na\nb\nhidden", "en") == "cash flow 2018 a b"
    assert heads("x" * 9_000, "") == "x" * 64
    assert heads("", "en") == ""


def test_a_word_has_an_entry_for_each_number_of_pages_that_it_reaches():
    counted = PageWords()
    for page in range(5):
        counted.add(f"The tides tide of page {'one' if page else 'two'}", "en")
    found = counted.entries()
    assert {"tide", "tide~2", "tide~4", "one", "one~2", "one~4", "two"} <= {*found.entries}
    assert "tide~8" not in found.entries
    assert "the" not in found.entries
    assert found.length == 3 * 5
    assert fields.name_entries("acm work") == ["=acm", "=work"]


def test_a_hostile_document_has_a_bounded_number_of_words(monkeypatch):
    monkeypatch.setattr(fields, "MAX_WORDS", 100)
    monkeypatch.setattr(fields, "_MAX_COUNTED", 400)
    counted = PageWords()
    for page in range(50):
        counted.add("often " + " ".join(f"w{page}x{n}" for n in range(100)), "en")
        assert len(counted._pages) <= 400 + 101
    found = counted.entries().entries
    assert len({entry.partition("~")[0] for entry in found}) == 100
    assert "often~16" in found
