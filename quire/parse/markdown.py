"""Markdown with its blocks: headings, lists, tables and code, line by line.

The text stays as it was written. Signs such as # and | are of no block, and a space is put beside
each | of a table, so that its cells are words of their own.
"""

import re

from quire.model.blocks import BlockKind
from quire.model.pages import Page
from quire.parse.composer import LINE_BREAK, Composer, GridCell

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]++(?=\S)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*+\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"([ \t]*+)(?:[-*+]|\d{1,9}[.)])[ \t]++(?=\S)")
_DELIMITER_ROW = re.compile(r"[ \t|:-]++\Z")
_INDENT = 2  # spaces of a level of a list
_MAX_INDENT = 40


def page(text: str) -> Page:
    """Return a Markdown file as a page."""
    made = _Markdown(text.split("\n"))
    made.read()
    return made.composer.page(1)


class _Markdown:
    def __init__(self, lines: list[str]) -> None:
        self.composer = Composer()
        self._lines = lines
        self._at = 0
        self._separator = LINE_BREAK

    def read(self) -> None:
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.strip():
                self._separator = "\n\n"
                self._at += 1
            elif fence := _FENCE.match(line):
                self._code(fence[1])
            elif heading := _HEADING.match(line):
                self._marked(BlockKind.HEADING, line, heading.end(), len(heading[1]))
            elif self._is_table():
                self._table()
            elif item := _ITEM.match(line):
                indent = len(item[1].expandtabs(4)[:_MAX_INDENT])
                self._marked(BlockKind.LIST_ITEM, line, item.end(), 1 + indent // _INDENT)
            else:
                self._paragraph()

    def _write(self, text: str) -> tuple[tuple[int, int], ...]:
        runs = self.composer.write(text, self._separator)
        self._separator = LINE_BREAK
        return runs

    def _marked(self, kind: BlockKind, line: str, stop: int, level: int) -> None:
        """Add a line whose sign is of no block, and the lines that go on with a list item."""
        self._at += 1
        lines = [line]
        while kind == BlockKind.LIST_ITEM and self._goes_on():
            lines.append(self._lines[self._at])
            self._at += 1
        [(first, end)] = self._write("\n".join(lines))
        first += len(line[:stop].split())
        if kind == BlockKind.HEADING and end > first + 1:
            end -= not line.split()[-1].strip("#")  # closing signs
        self.composer.block(kind, ((first, end),), level)

    def _goes_on(self) -> bool:
        """Tell whether the next line continues a paragraph."""
        if self._at >= len(self._lines):
            return False
        line = self._lines[self._at]
        starts = _FENCE.match(line) or _HEADING.match(line) or _ITEM.match(line)
        return bool(line.strip()) and not starts and not self._is_table()

    def _paragraph(self) -> None:
        lines = [self._lines[self._at]]
        self._at += 1
        while self._goes_on():
            line = self._lines[self._at]
            if _UNDERLINE.match(line):
                self.composer.block(
                    BlockKind.HEADING, self._write("\n".join(lines)), 1 if "=" in line else 2
                )
                self._write(line)
                self._at += 1
                return
            lines.append(line)
            self._at += 1
        self.composer.block(BlockKind.PARAGRAPH, self._write("\n".join(lines)))

    def _code(self, fence: str) -> None:
        self._write(self._lines[self._at])
        self._at += 1
        lines: list[str] = []
        while self._at < len(self._lines):
            line = self._lines[self._at].strip()
            self._at += 1
            if line.startswith(fence) and not line.strip(fence[0]):
                self.composer.block(BlockKind.CODE, self._write("\n".join(lines)))
                self._write(line)
                return
            lines.append(self._lines[self._at - 1])
        self.composer.block(BlockKind.CODE, self._write("\n".join(lines)))

    def _is_table(self) -> bool:
        """Tell whether the next two lines are the header of a table and the line below it."""
        if self._at + 1 >= len(self._lines) or "|" not in self._lines[self._at]:
            return False
        below = self._lines[self._at + 1]
        return "|" in below and "-" in below and _DELIMITER_ROW.match(below) is not None

    def _table(self) -> None:
        rows = []
        header = self._at
        while self._at < len(self._lines) and "|" in self._lines[self._at]:
            line = self._lines[self._at]
            if self._at == header + 1:
                self._write(line)
            else:
                rows.append(self._row(line))
            self._at += 1
        self.composer.table(rows, 1)

    def _row(self, line: str) -> list[GridCell]:
        texts = [" ".join(cell.split()) for cell in line.replace("\\|", "\0").split("|")]
        texts = [cell.replace("\0", "\\|") for cell in texts]
        [(at, _)] = self._write(" | ".join(texts).strip())
        found = []
        for number, cell in enumerate(texts):
            at += number > 0  # the sign between two cells
            count = len(cell.split())
            is_edge = not cell and number in (0, len(texts) - 1)
            if not is_edge:
                found.append(GridCell("", runs=((at, at + count),) if count else ()))
            at += count
        return found
