"""Splits a page into chunks along its structure: see `split`.

A *unit* is what is not torn if it fits: a paragraph, a list item, a row of a table, a heading.
Units follow each other in the text of the page. Chunks are runs of units, so a chunk is a range of
the text, as it is without structure. What a range leaves out is its *context*: the headings above
it, and the caption, unit and header of a table that it continues.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quire.model.blocks import Block, BlockKind, PageText, Table, words_of
from quire.model.pages import ChunkSpan
from quire.text import chunk
from quire.text.chunk import ChunkOptions
from quire.text.tokens import TokenOffsets

#: Characters of a context.
LONGEST_CONTEXT = 1_000
_MIN_FULL = 0.4  # share of the tokens after which a heading starts a new chunk


class _Unit(NamedTuple):
    start: int  # offsets in the text of the page
    stop: int
    context: str  # headings above
    is_heading: bool = False
    continues: str = ""  # caption, unit and header of the table of which this is a later row


def split(
    text: PageText, blocks: Sequence[Block], options: ChunkOptions | None = None
) -> list[ChunkSpan]:
    """Split a page into chunks of at most `options.tokens` tokens, each with its context.

    Paragraphs, list items and rows of tables are torn only if they do not fit by themselves, a
    heading stays with what follows it. A page without blocks, and a corpus with a delimiter of its
    own, are split by the text alone.
    """
    options = (options or ChunkOptions()).checked()
    if not blocks or options.delimiter or not text.spans:
        return chunk.split(text.text, options)
    units = _joined(text, sorted(_units(text, blocks)))
    return [span for group in _groups(text.text, units, options) for span in group]


def _units(text: PageText, blocks: Sequence[Block]) -> Iterator[_Unit]:
    """Yield the units of blocks, which are in reading order."""
    path: list[tuple[int, str]] = []
    for block in blocks:
        if block.kind == BlockKind.HEADING:
            level = block.level or 9
            path = [each for each in path if each[0] < level]
        context = "\n".join(title for _, title in path)[:LONGEST_CONTEXT]
        if block.kind == BlockKind.HEADING:
            path.append((level, text.of(block.runs)))
        if not block.runs:
            continue
        if block.table is not None:
            yield from _rows(text, block, block.table, context)
        else:
            yield _unit(text, list(words_of(block.runs)), context, block.kind)


def _unit(
    text: PageText, words: Sequence[int], context: str, kind: BlockKind, continues: str = ""
) -> _Unit:
    start, stop = text.spans[min(words)][0], text.spans[max(words)][1]
    return _Unit(start, stop, context, kind == BlockKind.HEADING, continues)


def _rows(text: PageText, block: Block, table: Table, context: str) -> Iterator[_Unit]:
    """Yield the rows of a table; caption, unit and header belong to the first one."""
    by_row: dict[int, list[int]] = {}
    first = table.header_rows
    for cell in table.cells:
        by_row.setdefault(max(cell.row, first), []).extend(words_of(cell.runs))
    for runs in (table.caption, table.unit):
        by_row.setdefault(first, []).extend(words_of(runs))
    rows = [by_row[row] for row in sorted(by_row)]
    notes = [list(words_of(note)) for note in table.footnotes]
    heads = [c.runs for c in table.cells if c.row < first]
    repeated = [text.of(runs) for runs in (table.caption, table.unit, *heads) if runs]
    continues = " ".join(repeated)[:LONGEST_CONTEXT]
    for index, words in enumerate([*filter(None, rows), *notes]):
        yield _unit(text, words, context, BlockKind.TABLE, continues if index else "")


def _joined(text: PageText, units: Sequence[_Unit]) -> list[_Unit]:
    """Join units that overlap in the text, and let each reach as far as the next one."""
    found: list[_Unit] = []
    for each in units:
        if found and each.start < found[-1].stop:
            last = found[-1]
            stop = max(last.stop, each.stop)
            found[-1] = last._replace(stop=stop, is_heading=last.is_heading and each.is_heading)
        else:
            found.append(each)
    starts = [0, *(each.start for each in found[1:]), len(text.text)]
    return [
        each._replace(start=starts[index], stop=starts[index + 1])
        for index, each in enumerate(found)
    ]


def _groups(text: str, units: Sequence[_Unit], options: ChunkOptions) -> Iterator[list[ChunkSpan]]:
    """Yield the chunks of runs of units that fit together, or of one unit that does not fit."""
    offsets = TokenOffsets(text)
    group: list[_Unit] = []
    for unit in units:
        size = offsets.count(group[0].start, unit.stop) if group else 0
        is_full = group and offsets.count(group[0].start, group[-1].stop) > (
            _MIN_FULL * options.tokens
        )
        if group and (size > options.tokens or (unit.is_heading and is_full)):
            kept = _headings_at_end(group)
            yield _spans(text, group[: len(group) - kept], options)
            group = group[len(group) - kept :]
        group.append(unit)
    yield _spans(text, group, options)


def _headings_at_end(group: Sequence[_Unit]) -> int:
    """Count the headings that would be left alone at the end of a chunk."""
    count = 0
    while count < len(group) and group[-1 - count].is_heading:
        count += 1
    return 0 if count == len(group) else count


def _spans(text: str, group: Sequence[_Unit], options: ChunkOptions) -> list[ChunkSpan]:
    if not group:
        return []
    start, stop = group[0].start, group[-1].stop
    starts = [unit.start for unit in group]
    found = []
    for each in chunk.split(text[start:stop], options):
        # More than one if a unit did not fit: then each has the context of where it begins.
        at = start + each.start
        unit = group[max(bisect_right(starts, at) - 1, 0)]
        context = "\n".join(filter(None, (unit.context, unit.continues)))[:LONGEST_CONTEXT]
        found.append(ChunkSpan(at, start + each.stop, each.tokens, context))
    return found
