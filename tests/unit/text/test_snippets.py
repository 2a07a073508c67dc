"""What is shown of a text that was found."""

import pytest

from quire.text.snippets import snippet
from quire.text.words import query_terms

FILLER = "Nothing of interest is said in this sentence at all. " * 20


def marked(text: str, query: str, languages: list[str], width: int = 240) -> list[str]:
    shown, ranges = snippet(text, query_terms(query, languages), width, languages)
    return [shown[start:stop] for start, stop in ranges]


@pytest.mark.parametrize(
    ("text", "query", "languages", "expected"),
    [
        ("Two houses, one House.", "house", ["en"], ["houses", "House"]),
        ("Die Häuser am Fluss, das ist ein Haus.", "Haus", ["de"], ["Häuser", "Haus"]),
        ("Die Häuser", "Haus", ["de"], ["Häuser"]),
        ("Đường phố Đà Nẵng", "da nang", ["vi"], ["Đà", "Nẵng"]),
        ("机器学习可以预测洪水", "机器学习", ["zh"], ["机器学习"]),
        ("河水与洪水", "水", ["zh"], ["水", "水"]),
        ("บ้านริมแม่น้ำ", "แม่น้ำ", ["th"], ["แม่น้ำ"]),
        ("A naïve café", "naive CAFE", ["en"], ["naïve", "café"]),
        ("the bank of the river", '"river bank"', ["en"], ["bank", "river"]),
        ("nothing here", "absent", ["en"], []),
        ("", "absent", ["en"], []),
    ],
)
def test_words_are_marked_in_every_form(text, query, languages, expected):
    assert marked(text, query, languages) == expected


def test_the_window_has_the_most_different_terms():
    text = f"Rivers rise. {FILLER} The river took the bridge in one night. {FILLER} A bridge."
    shown, ranges = snippet(text, query_terms("river bridge night", ["en"]), 120)
    assert [shown[a:b] for a, b in ranges] == ["river", "bridge", "night"]
    assert 100 <= len(shown) <= 160


def test_no_word_is_cut_at_the_edges_and_lines_become_spaces():
    text = FILLER.replace(". ", ".\r\n") + "the flood came " + FILLER
    shown, _ = snippet(text, query_terms("flood"), 100)
    words = set(text.split())
    assert set(shown.split()) <= words
    assert "\n" not in shown


def test_without_terms_it_is_the_beginning():
    shown, ranges = snippet(FILLER, [], 50)
    assert FILLER.startswith(shown) and ranges == []


def test_a_text_without_spaces_has_a_window_too():
    shown, ranges = snippet("漢" * 5_000 + "洪水" + "字" * 5_000, query_terms("洪水"), 100)
    [(start, stop)] = ranges
    assert shown[start:stop] == "洪水" and len(shown) == 100
