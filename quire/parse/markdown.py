"""Markdown with its blocks: headings, lists, tables, quotes and code, line by line.

The text stays as it was written. Signs such as # and | are of no block, and a space is put beside
each | of a table and after each > of a quote, so that these are words of their own.
"""

import re

from quire.model.blocks import BlockKind, join_runs
from quire.model.pages import Page
from quire.parse.composer import LINE_BREAK, Composer, GridCell

_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]++(?=\S)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*+\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"([ \t]*+)(?:[-*+]|\d{1,9}[.)])[ \t]++(?=\S)")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*+){3,}|(?:\*[ \t]*+){3,}|(?:_[ \t]*+){3,})\Z")
_QUOTE = re.compile(r" {0,3}((?:>[ \t]?+)+)")
_INDENTED = re.compile(r"(?: {4}|\t)(?=\s*+\S)")
_FRONT_MATTER, _FRONT_MATTER_ENDS = "---", ("---", "...")
_MAX_FRONT_MATTER = 200  # lines
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
        self._in_list = False  # an indented line goes on with an item

    def read(self) -> None:
        self._front_matter()
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not line.strip():
                self._separator = "\n\n"
                self._at += 1
            elif not self._in_list and _INDENTED.match(line):
                self._indented()
            else:
                self._in_list = self._block(line)

    def _block(self, line: str) -> bool:
        """Add the block that starts with a line; tell whether it is a list item."""
        if fence := _FENCE.match(line):
            self._code(fence[1])
        elif _RULE.match(line):
            self._sign()
        elif heading := _HEADING.match(line):
            self._marked(BlockKind.HEADING, line, heading.end(), len(heading[1]))
        elif self._is_table():
            self._table()
        elif item := _ITEM.match(line):
            indent = len(item[1].expandtabs(4)[:_MAX_INDENT])
            self._marked(BlockKind.LIST_ITEM, line, item.end(), 1 + indent // _INDENT)
            return True
        elif _QUOTE.match(line):
            self._quote()
        else:
            self._paragraph()
            return self._in_list and line[:1].isspace()
        return False

    def _sign(self) -> None:
        """Write a line of signs, which is of no block."""
        self._write(self._lines[self._at])
        self._at += 1

    def _front_matter(self) -> None:
        """Add what is between two lines of --- at the start of a file."""
        first = self._lines[0].rstrip()
        ends = (
            at
            for at, line in enumerate(self._lines[1:_MAX_FRONT_MATTER], start=1)
            if line.rstrip() in _FRONT_MATTER_ENDS
        )
        stop = next(ends, None) if first == _FRONT_MATTER else None
        if stop is not None:
            self._sign()
            self.composer.block(BlockKind.CODE, self._write("\n".join(self._lines[1:stop])))
            self._at = stop
            self._sign()

    def _quote(self) -> None:
        """Add the paragraphs of a quote."""
        runs: list[tuple[int, int]] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            sign = _QUOTE.match(line)
            if sign is None:
                break
            text = line[sign.end() :].strip()
            for first, stop in self._write(f"{sign[1].rstrip()} {text}".rstrip()):
                first += len(sign[1].split())
                runs += [(first, stop)] if text else []
            if not text:
                self.composer.block(BlockKind.PARAGRAPH, join_runs(runs))
                runs = []
            self._at += 1
        self.composer.block(BlockKind.PARAGRAPH, join_runs(runs))

    def _indented(self) -> None:
        """Add lines of code, which are indented by four."""
        start = self._at
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and not _INDENTED.match(line):
                break
            self._at += 1
        while not self._lines[self._at - 1].strip():
            self._at -= 1
        lines = self._lines[start : self._at]
        self.composer.block(BlockKind.CODE, self._write("\n".join(lines)))

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
        sign = line[:stop].split()
        # The number of an item is a part of it, its bullet is not.
        first += len(sign) if not sign[-1][0].isdigit() else 0
        if kind == BlockKind.HEADING and end > first + 1:
            end -= not line.split()[-1].strip("#")  # closing signs
        self.composer.block(kind, ((first, end),), level)

    def _goes_on(self) -> bool:
        """Tell whether the next line continues a paragraph."""
        if self._at >= len(self._lines):
            return False
        line = self._lines[self._at]
        starts = (_FENCE, _HEADING, _ITEM, _QUOTE)
        if not line.strip() or any(each.match(line) for each in starts):
            return False
        return not self._is_table() and not (_RULE.match(line) and not _UNDERLINE.match(line))

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
