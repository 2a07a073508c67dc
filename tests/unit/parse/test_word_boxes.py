"""Word boxes survive packing, and a stretch of text is found on the page."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.model.pages import Page, Word
from quire.parse import word_boxes

PLACES = st.floats(-2000, 20_000, allow_nan=False)
SIZES = st.floats(0, 2000, allow_nan=False)
BOX = st.tuples(PLACES, PLACES, SIZES, SIZES)
WORD = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=6)
TWO_LINES = np.array([[10, 20, 30, 10], [45, 20, 20, 10], [10, 40, 25, 10], [40, 40, 9, 10]], float)


@given(st.lists(st.tuples(WORD, BOX), max_size=60))
def test_words_are_what_they_were(given_words: list[tuple[str, tuple[float, ...]]]):
    text = " \n".join(text for text, _ in given_words)
    found = word_boxes.unpack(
        word_boxes.pack(np.array([box for _, box in given_words]).reshape(-1, 4)), text
    )
    assert [word.text for word in found] == text.split()
    for word, (_, (x, y, width, height)) in zip(found, given_words, strict=True):
        corners = word.x, word.y, word.x + word.width, word.y + word.height
        assert corners == pytest.approx((x, y, x + width, y + height), abs=0.051)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e30])
def test_a_box_beyond_reason_is_packed_all_the_same(odd: float):
    packed = word_boxes.pack(np.array([[odd, 1, 2, odd], [5, 6, 7, 8]]))
    assert word_boxes.unpack(packed, "a b")[1] == Word(5, 6, 7, 8, "b")


def test_a_word_over_two_lines_has_two_boxes():
    text = "An example here"
    packed = word_boxes.pack(TWO_LINES, breaks=[5])
    assert [word.text for word in word_boxes.unpack(packed, text)] == ["An", "ex", "ample", "here"]


def test_boxes_of_a_stretch_are_merged_line_by_line():
    packed, text = word_boxes.pack(TWO_LINES), "one two three four"
    assert word_boxes.boxes(packed, text, 0, len(text)) == [(10, 20, 55, 10), (10, 40, 39, 10)]
    assert word_boxes.boxes(packed, text, 5, 10) == [(45, 20, 20, 10), (10, 40, 25, 10)]
    assert word_boxes.boxes(packed, text, 3, 4) == []


def test_a_text_that_is_not_the_one_packed_has_no_boxes():
    packed = word_boxes.pack(TWO_LINES)
    assert word_boxes.unpack(packed, "one two three") == []
    assert word_boxes.boxes(packed, "other words", 0, 5) == []
    assert word_boxes.unpack(b"", "one two") == []


def test_pages_are_written_in_both_forms_of_pawls():
    page = Page(3, "one two three four", word_boxes.pack(TWO_LINES), 595.2, 842.0)
    [first] = word_boxes.pawls([page])
    assert first["page"] == {"width": 595.2, "height": 842.0, "index": 2}
    assert first["tokens"][1] == {"x": 45, "y": 20, "width": 20, "height": 10, "text": "two"}
    compact = word_boxes.pawls([page], version=2)
    assert (compact["v"], compact["p"][0]["w"]) == (2, 595.2)
    assert compact["p"][0]["t"][3] == [40, 40, 9, 10, "four"]


def test_a_page_is_packed_small_and_fast():
    rows = np.array([[50 + i % 12 * 40.3, 50 + i // 12 * 14, 36.7, 11] for i in range(360)])
    begun = time.perf_counter()
    for _ in range(20):
        packed = word_boxes.pack(rows)
    assert (time.perf_counter() - begun) / 20 < 0.005
    assert len(packed) < 360 * 4
