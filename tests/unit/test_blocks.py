"""Blocks keep what they were given, and believe nothing of what comes out of a box."""

from __future__ import annotations

import zlib
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.model.blocks import (
    Block,
    BlockKind,
    BlockSource,
    Cell,
    InvalidBlocks,
    PageText,
    Table,
    pack,
    runs_of,
    unpack,
    words_of,
)

TABLE = Table(
    rows=2,
    columns=3,
    header_rows=1,
    cells=(
        Cell(0, 1, 1, 2, ((2, 4),)),
        Cell(1, 0, 1, 1, ((4, 5),)),
        Cell(1, 1, 1, 1, ((5, 6), (7, 8))),
    ),
    caption=((8, 9),),
    unit=((6, 7),),
    footnotes=(((9, 10),), ((10, 12),)),
)
BLOCKS = [
    Block(BlockKind.HEADING, ((0, 2),), level=2, confidence=75, source=BlockSource.OUTLINE),
    Block(BlockKind.TABLE, ((2, 12),), table=TABLE),
    Block(BlockKind.PARAGRAPH, ((14, 16), (12, 14))),
]


def packed(*numbers: int, layout: int = 1) -> bytes:
    return bytes([layout]) + zlib.compress(array("i", numbers).tobytes())


def test_blocks_are_unpacked_as_they_were_packed():
    assert unpack(pack(BLOCKS), 16) == BLOCKS
    assert pack([]) == b"" and unpack(b"", 5) == []


@given(st.lists(st.integers(0, 99), unique=True))
def test_words_of_runs_are_the_words_that_were_joined(words: list[int]):
    assert list(words_of(runs_of(words))) == words


def test_the_text_of_a_block_has_single_spaces_and_joins_a_hyphenated_word():
    text = PageText("a  paragraph\nthat goeson", [(0, 1), (3, 12), (13, 17), (18, 22), (22, 24)])
    assert text.of(((0, 5),)) == "a paragraph that goeson"
    assert text.of(((2, 3), (0, 1))) == "that a"


HEAD = (0, 0, 100, 0)  # kind, level, confidence, source


@pytest.mark.parametrize(
    "hostile",
    [
        packed(1, *HEAD, 1, 0, 17),  # a word that the page does not have
        packed(1, *HEAD, 1, -1, 2),
        packed(1, *HEAD, 1, 0, 0),  # an empty run
        packed(2, *HEAD, 1, 0, 10, *HEAD, 1, -10, 10),  # words in two blocks
        packed(1, 99, 0, 100, 0, 1, 0, 1),  # an unknown kind
        packed(1, 0, 0, 101, 0, 1, 0, 1),
        packed(1, 0, 99, 100, 0, 1, 0, 1),
        packed(50_001),
        packed(1, *HEAD),  # cut off
        packed(0, 7),  # something after the end
        packed(1, 3, 0, 100, 0, 1, 0, 1, 200_000, 20_000, 0, 0, 0, 0, 0),  # a huge grid
        packed(1, 3, 0, 100, 0, 1, 0, 1, 2, 2, 3, 0, 0, 0, 0),  # more header rows than rows
        packed(1, 3, 0, 100, 0, 1, 0, 1, 2, 2, 0, 1, 1, 1, 2, 1, 1, 0, 1, 0, 0, 0),  # beyond
        packed(
            1, 3, 0, 100, 0, 1, 0, 4, 1, 1, 0, 2,  # two cells in one place
            0, 0, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0,
        ),
        packed(0, layout=2),
        b"\x01not compressed",
        b"\x01" + zlib.compress(b"abc"),
        b"\x01" + zlib.compress(bytes(10_000_000)),  # a few bytes that become many
    ],
)  # fmt: skip
def test_what_is_not_a_block_of_the_page_is_refused(hostile: bytes):
    with pytest.raises(InvalidBlocks):
        unpack(hostile, 16)


@given(st.binary(max_size=200), st.integers(0, 1000))
def test_no_bytes_do_more_than_be_refused(hostile: bytes, words: int):
    for content in (hostile, b"\x01" + zlib.compress(hostile)):
        try:
            found = unpack(content, words)
        except InvalidBlocks:
            continue
        assert all(word < words for block in found for word in words_of(block.runs))


@given(st.lists(st.integers(-3, 30), max_size=60))
def test_numbers_that_pass_name_each_word_of_the_page_at_most_once(numbers: list[int]):
    try:
        found = unpack(packed(*numbers), 20)
    except InvalidBlocks:
        return
    named = [word for block in found for word in words_of(block.runs)]
    assert len(named) <= 20 and all(0 <= word < 20 for word in named)


def test_what_unpacks_to_little_and_is_long_itself_is_refused():
    plain = array("i", [0]).tobytes()
    packer = zlib.compressobj(0)
    head = packer.compress(plain) + packer.flush(zlib.Z_FULL_FLUSH)
    empty = b"\x00\x00\x00\xff\xff"  # a part that unpacks to nothing
    for count, is_short in ((10, True), (100_000, False)):
        whole = b"\x01" + head + empty * count + packer.copy().flush()
        if is_short:
            assert unpack(whole, 5) == []
        else:
            with pytest.raises(InvalidBlocks, match="longer than"):
                unpack(whole, 5)
