"""Whatever the text: nothing is lost, nothing is too long, and it ends."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.text.chunk import ChunkOptions, split
from quire.text.tokens import estimate

SCRIPTS = [
    "abc déf ",
    "ABC. Xyz! ",
    "漢字仮名交じり文。",
    "ก็ดีมาก",
    "नमस्ते ",
    "a\u0301\u0308",
    "👩‍👩‍👧",
    "0123 ",
]
SCRIPTS += ["\n\n", "\r\n", "\t  ", "<s></s>", "▁", "-----", "\ud800"]
texts = st.one_of(
    st.text(max_size=400),
    st.lists(st.sampled_from(SCRIPTS), max_size=120).map("".join),
    st.lists(st.sampled_from(SCRIPTS).map(lambda s: s * 40), max_size=8).map("".join),
)
choices = st.builds(
    ChunkOptions,
    tokens=st.integers(16, 80),
    overlap=st.integers(0, 8),
    delimiter=st.sampled_from(["", "\n", "b", "。", "-----", "f A"]),
)


def check(text: str, options: ChunkOptions) -> None:
    found = split(text, options)
    assert found == split(text, options)
    covered: set[int] = set()
    for piece in found:
        assert 0 <= piece.start < piece.stop <= len(text)
        own = text[piece.start : piece.stop]
        assert own == own.strip()
        assert estimate(own) <= options.tokens
        assert 0 < piece.tokens <= options.tokens
        covered.update(range(piece.start, piece.stop))
    assert all(at in covered for at, char in enumerate(text) if not char.isspace())
    for one, two in itertools.pairwise(found):
        assert one.start < two.start and one.stop < two.stop


@settings(deadline=None)
@given(text=texts, options=choices)
def test_every_character_is_in_a_piece_and_no_piece_is_too_long(text, options):
    check(text, options)


@pytest.mark.parametrize(
    "text",
    ["x" * 1_000_000, "漢" * 100_000, "a b" * 100_000, " " * 1_000_000 + "a", "e\u0301" * 50_000],
    ids=["one word", "no spaces", "short words", "white space", "accents"],
)
def test_a_huge_page_is_cut_in_seconds(text):
    found = split(text, ChunkOptions())
    assert found[-1].stop == len(text)
    assert all(
        one.stop >= two.start or text[one.stop : two.start].isspace()
        for one, two in itertools.pairwise(found)
    )
    assert all(piece.tokens <= ChunkOptions().tokens for piece in found)


@given(st.lists(st.sampled_from(["e\u0301", "ที่", "नि"]), min_size=100, max_size=200).map("".join))
def test_no_accent_is_parted_from_its_letter(text):
    for piece in split(text, ChunkOptions(16, 4)):
        assert text[piece.start] not in "\u0301\u0e35\u0e48\u093f"
