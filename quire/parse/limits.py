"""Limits of text: what a small file may become. Each is a permanent error of a page or file alone.

The limits of one format stand in the module that reads it; docs/limits.md lists them all.
"""

from quire.errors import Unreadable
from quire.model.pages import Page, PageFailure

#: Characters of one page; a page of a book has 3,000.
PAGE_CHARACTERS = 2_000_000
#: Characters of a file that is one page: text, HTML, a Word file, a message.
WHOLE_CHARACTERS = 50_000_000
#: Characters that one task reads: a whole file, or one range of pages of a large one.
TASK_CHARACTERS = 200_000_000
#: Pages of a file, whatever says so: a box that was taken over may name any number.
MAX_PAGES = 1_000_000
#: Characters of a cell; Excel has the same limit. The rest of the cell is cut off.
CELL_CHARACTERS = 32_767
#: Bytes of a small picture of page 1; 300 by 300 pixels have at most 270,000.
THUMBNAIL_BYTES = 1 << 20


class TextBudget:
    """Counts the characters that one task reads."""

    def __init__(self, *, is_whole: bool) -> None:
        self._per_page = WHOLE_CHARACTERS if is_whole else PAGE_CHARACTERS
        self._left = TASK_CHARACTERS

    def checked(self, page: Page | PageFailure) -> Page | PageFailure:
        """Return a page, or a failure if it has too much text; raise Unreadable if all have."""
        if isinstance(page, PageFailure):
            return page
        count = len(page.text)
        if count > self._per_page:
            return PageFailure(
                page.number,
                f"page {page.number}: has {count:,} characters (at most {self._per_page:,}). "
                "Split it and ingest the parts.",
            )
        self._left -= count
        if self._left < 0:
            raise Unreadable(
                f"has more than {TASK_CHARACTERS:,} characters up to page {page.number}. "
                "Split it and ingest the parts."
            )
        return page
