"""Running headers and footers are the lines that repeat at one height of several pages."""

from __future__ import annotations

from quire.model.running_lines import EdgeLine, find


def page(number: int, *lines: tuple[str, float]) -> list[EdgeLine]:
    return [
        EdgeLine(number, index, text, top, top + 0.02) for index, (text, top) in enumerate(lines)
    ]


def body(number: int) -> tuple[str, float]:
    return f"What page {number} alone says: {'abcdefgh'[number % 8] * 30}", 0.3


def test_a_line_that_differs_in_its_digits_repeats():
    pages = [page(n, ("Annual Report", 0.04), body(n), (f"Page {n} of 9", 0.95)) for n in range(5)]
    assert find(pages) == {(n, at) for n in range(5) for at in (0, 2)}


def test_the_head_of_a_chapter_needs_three_pages():
    heads = ["One", "One", "Two", "Two", "Two", "Three"]
    pages = [page(n, (head, 0.04), body(n)) for n, head in enumerate(heads)]
    assert find(pages) == {(2, 0), (3, 0), (4, 0)}


def test_a_line_in_the_middle_or_at_another_height_does_not_repeat():
    assert not find(page(n, body(n), ("Total", 0.5), body(n + 1)) for n in range(6))
    heights = (0.02, 0.06, 0.1, 0.14)
    assert not find(page(n, ("Same words", top), body(n)) for n, top in enumerate(heights))


def test_headings_that_differ_in_a_number_are_no_running_lines():
    pages = [page(n, (f"Chapter {n}", 0.04), body(n)) for n in range(5)]
    assert find(pages)
    assert not find([[line._replace(is_heading=True) for line in each] for each in pages])


def test_of_a_short_document_all_pages_must_repeat_a_line():
    assert find([page(0, ("A", 0.04), body(0)), page(1, ("A", 0.04), body(1))]) == {(0, 0), (1, 0)}
    assert not find([page(0, ("A", 0.04), body(0))])
