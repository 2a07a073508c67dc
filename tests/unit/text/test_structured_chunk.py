"""Chunks follow the structure of a page, and leave nothing of it out, whatever the blocks say."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from quire.model.blocks import Block, BlockKind, Cell, PageText, Table
from quire.text.chunk import ChunkOptions
from quire.text.structured_chunk import split
from quire.text.tokens import estimate


def page(*parts: tuple[BlockKind, int, str]) -> tuple[PageText, list[Block]]:
    """A page of blocks: kind, level and text of each."""
    text = "\n".join(words for _, _, words in parts)
    spans = [found.span() for found in re.finditer(r"\S+", text)]
    blocks, at = [], 0
    for kind, level, words in parts:
        count = len(words.split())
        blocks.append(Block(kind, ((at, at + count),), level=level))
        at += count
    return PageText(text, spans), blocks


def table(rows: int) -> tuple[PageText, list[Block]]:
    """A heading and a table with a header, rows of a label and a number."""
    lines = ["Cash flows", "in millions", "Year 2021"] + [f"label{r} {r},000" for r in range(rows)]
    text = "\n".join(lines)
    spans = [found.span() for found in re.finditer(r"\S+", text)]
    cells = [
        Cell(row, column, 1, 1, ((4 + 2 * row + column, 5 + 2 * row + column),))
        for row in range(rows + 1)
        for column in range(2)
    ]
    made = Table(rows + 1, 2, 1, tuple(cells), unit=((2, 4),))
    return PageText(text, spans), [
        Block(BlockKind.HEADING, ((0, 2),), level=1),
        Block(BlockKind.TABLE, ((2, len(spans)),), table=made),
    ]


P, H, L = BlockKind.PARAGRAPH, BlockKind.HEADING, BlockKind.LIST_ITEM
PROSE = "the tide turns at noon and the pilots wait for it " * 2


def texts(text: PageText, blocks: list[Block], tokens: int = 64) -> list[tuple[str, str]]:
    found = split(text, blocks, ChunkOptions(tokens, 0))
    return [(text.text[each.start : each.stop], each.context) for each in found]


def test_a_paragraph_is_not_torn_if_it_fits():
    text, blocks = page(*[(P, 0, PROSE.strip())] * 6)
    assert [part for part, _ in texts(text, blocks)] == [f"{PROSE.strip()}\n{PROSE.strip()}"] * 3


def test_a_heading_stays_with_what_follows_it_and_is_the_context_of_the_rest():
    text, blocks = page((P, 0, PROSE * 2), (H, 1, "Pilots"), *[(P, 0, PROSE.strip())] * 5)
    found = texts(text, blocks)
    assert [part.startswith("Pilots") for part, _ in found] == [False, True, False, False]
    assert [context for _, context in found] == ["", "", "Pilots", "Pilots"]


def test_every_part_of_a_long_paragraph_knows_the_heading_above_it():
    text, blocks = page((H, 1, "Pilots"), (P, 0, PROSE * 6))
    contexts = [context for _, context in texts(text, blocks)]
    assert contexts == ["", *["Pilots"] * (len(contexts) - 1)] and len(contexts) > 2


def test_the_context_is_the_path_of_headings():
    text, blocks = page(
        (H, 1, "Harbour"), (P, 0, PROSE), (H, 2, "Fees"), (P, 0, PROSE * 3), (H, 2, "Dues"),
        (P, 0, PROSE * 3),
    )  # fmt: skip
    contexts = [context for _, context in texts(text, blocks, 40)]
    assert contexts[0] == "" and "Harbour\nFees" in contexts and contexts[-1] == "Harbour\nDues"


def test_a_table_is_cut_between_rows_and_each_part_knows_its_header_and_unit():
    text, blocks = table(60)
    found = texts(text, blocks)
    assert len(found) > 3
    for part, context in found[1:]:
        lines = part.splitlines()
        assert all(re.fullmatch(r"label\d+ \d+,000", line) for line in lines)
        assert context == "Cash flows\nin millions Year 2021"
    assert found[0][0].startswith("Cash flows\nin millions\nYear 2021\nlabel0")


def test_without_blocks_or_with_a_delimiter_the_text_alone_decides():
    text, blocks = page((H, 1, "One"), (P, 0, PROSE * 4))
    assert split(text, []) == split(PageText(text.text, []), [])
    assert all(not each.context for each in split(text, blocks, ChunkOptions(32, 0, "tide")))


KINDS = st.sampled_from(list(BlockKind)).filter(lambda kind: kind != BlockKind.TABLE)
words = st.lists(st.sampled_from(["tide", "a", "12,345", "Wärter", "漢字仮名"]), max_size=60)


@settings(deadline=None)
@given(
    words=words,
    cuts=st.lists(st.integers(0, 60), max_size=8),
    kinds=st.lists(KINDS, min_size=10, max_size=10),
    order=st.randoms(use_true_random=False),
    tokens=st.integers(16, 60),
)
def test_nothing_is_left_out_and_no_chunk_is_too_long(words, cuts, kinds, order, tokens):
    text = PageText("\n".join(words), [])
    text.spans = [found.span() for found in re.finditer(r"\S+", text.text)]
    edges = sorted({0, len(words), *(min(cut, len(words)) for cut in cuts)})
    blocks = [
        Block(kind, ((first, stop),), level=len(kinds) % 3)
        for kind, first, stop in zip(kinds, edges, edges[1:], strict=False)
    ]
    order.shuffle(blocks)
    found = split(text, blocks, ChunkOptions(tokens, 4))
    covered = {at for each in found for at in range(each.start, each.stop)}
    assert all(at in covered for at, sign in enumerate(text.text) if not sign.isspace())
    assert all(estimate(text.text[each.start : each.stop]) <= tokens for each in found)
    assert all(a.start < b.start for a, b in pairwise(found))
