"""What a parser yields: pages with word boxes, and the chunks of their text.

Needs no library, so that every layer can import it.
"""

from typing import Any, NamedTuple


class Word(NamedTuple):
    """One word on a page, with its box in points from the top left corner of the page."""

    x: float
    y: float
    width: float
    height: float
    text: str


class Outline(NamedTuple):
    """The structure of a file, known before any page of it is read."""

    media_type: str
    unit: str  # page: ranges of pages | whole: read in one go
    length: int  # pages; 1 for whole
    #: One digest per page of its content, if the format gives it cheaply.
    keys: tuple[str, ...] | None = None
    #: Pages that may be scans, if known: those with images as large as a page.
    scans: int | None = None


class Page(NamedTuple):
    """The text of one page, slide, sheet or other unit of a format."""

    number: int  # from 1
    text: str
    words: bytes = b""  # packed boxes, see `parse.word_boxes`
    width: float = 0.0
    height: float = 0.0
    via: str = "text"  # how the text was found: text, ocr or none
    label: str | None = None  # as people call it: "Sheet1, rows 1 to 3,000", "slide 4"
    image_key: str | None = None  # digest of the image that OCR read
    blocks: bytes = b""  # packed structure, see `model.blocks`


class PagePicture(NamedTuple):
    """A page as a plugin for layout gets it. Words are in points, the picture in pixels."""

    pixels: Any  # a NumPy array of height × width × 3: blue, green, red
    words: list[Word]
    width: float  # of the page, in points
    height: float


class PageFailure(NamedTuple):
    """A page that could not be read; later pages can."""

    number: int
    error: str  # a plain sentence


class Attachment(NamedTuple):
    """A file inside a file."""

    name: str
    content: bytes


class ChunkSpan(NamedTuple):
    """A chunk: a range of the text of a page."""

    start: int
    stop: int
    tokens: int
    context: str = ""  # what stands above it, to be found by; not part of its text
