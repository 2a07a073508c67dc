"""What a parser yields and what is cut from it: pages, word boxes and pieces of text.

No library is needed here, so that every layer can speak of pages.
"""

from typing import NamedTuple


class Word(NamedTuple):
    """One word on a page; a box in points from the upper left corner, as a reader sees the page."""

    x: float
    y: float
    width: float
    height: float
    text: str


class Outline(NamedTuple):
    """What a first look at a file tells, before any page of it is read."""

    media_type: str
    unit: str  # page: ranges of pages | row: ranges of rows | whole: read in one go
    length: int  # pages or rows; 1 for whole
    #: One digest per page of what the page is made of, where the format gives it cheaply.
    keys: tuple[str, ...] | None = None
    #: Pictures in the whole file, where that is known: a page without one is hardly a scan.
    pictures: int | None = None


class Page(NamedTuple):
    """The text of one page, or of what a format has instead of pages."""

    number: int  # from 1
    text: str
    words: bytes = b""  # packed boxes, see `parse.words`
    width: float = 0.0
    height: float = 0.0
    via: str = "text"  # text | ocr | none: how the text was found
    label: str | None = None  # what people call it: "Sheet1, rows 1 to 3,000", "slide 4"
    image_key: str | None = None  # digest of the picture that was recognised


class PageFailure(NamedTuple):
    """A page that could not be read; the pages after it can."""

    number: int
    error: str  # a plain sentence


class Attachment(NamedTuple):
    """A file inside a file."""

    name: str
    content: bytes


class Piece(NamedTuple):
    """A stretch of a page's text that is searched for as one."""

    start: int
    stop: int
    tokens: int
