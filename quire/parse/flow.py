"""Pages of a text whose format has none, or has breaks that its last program drew.

With drawn breaks these are the pages. Without, explicit breaks cut the text, and then headings
after some hundred words, or any paragraph after some thousand; such a page is called a section.
"""

from collections.abc import Sequence

from quire.model.blocks import BlockKind
from quire.model.pages import Page
from quire.parse import composer, table_headers
from quire.parse.composer import Composer, GridCell

#: A text without drawn pages is cut before a heading after so many words, …
_SECTION_WORDS = 400
#: … and anywhere between paragraphs after so many.
_LONG_SECTION_WORDS = 2_000
#: The text that follows is left on the last page.
MAX_PAGES = 100_000
_MAX_LABEL = 80


class Flow:
    """Takes the pieces of a text in their order; `finished` has the pages that are complete."""

    def __init__(self, *, is_drawn: bool) -> None:
        self.finished: list[Page] = []
        self._is_drawn = is_drawn
        self._page = Composer()
        self._number = 1
        self._title = ""  # the first heading of the page
        self._notes: list[str] = []

    def add(self, kind: BlockKind, text: str, level: int = 0) -> None:
        """Add a piece of text."""
        if not text.strip():
            return
        most = _SECTION_WORDS if kind == BlockKind.HEADING else _LONG_SECTION_WORDS
        if not self._is_drawn and self._page.words >= most:
            self.end_page()
        if kind == BlockKind.HEADING:
            self._title = self._title or composer.line(text)
        self._page.add(kind, text, level)

    def table(self, rows: Sequence[Sequence[GridCell]], header_rows: int = 0) -> None:
        """Add a table; without `header_rows` its headers are looked for."""
        found = header_rows or table_headers.count([[cell.text for cell in row] for row in rows])
        self._page.table(rows, found)

    def note(self, text: str) -> None:
        """Add a footnote, which stands at the end of its page."""
        self._notes.append(text)

    def end_page(self) -> None:
        """End the page; one without words is none."""
        if self._page.words and self._number < MAX_PAGES:
            self.finished.append(self._finish(is_last=False))
            self._number += 1
            self._page, self._title = Composer(), ""

    def last(self) -> Page:
        """Return the last page."""
        return self._finish(is_last=True)

    def _finish(self, *, is_last: bool) -> Page:
        for note in self._notes:
            self._page.add(BlockKind.FOOTNOTE, note)
        self._notes = []
        label = None
        if not self._is_drawn and not (is_last and self._number == 1):
            title = f": {self._title[:_MAX_LABEL]}" if self._title else ""
            label = f"section {self._number}{title}"
        return self._page.page(self._number, label)
