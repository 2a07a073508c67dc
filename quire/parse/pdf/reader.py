"""PDF files, by PDFium: page count and keys, text with word boxes, OCR of scanned pages.

The last file stays open, because one process reads the page ranges of a file one after the other.
A page that fails yields a PageFailure; the pages after it are still read.
"""

import atexit
import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.errors import QuireError, Unreadable
from quire.model.blocks import pack
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import ocr, word_boxes
from quire.parse.parser import ReadOptions, ReadRequest
from quire.parse.pdf import bookmarks, lines, page_keys, rulings, structure
from quire.parse.pdf import text as pdf_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_PAGES = 100_000

#: A page that is mostly an image and has fewer letters than this is a scan with a stamp.
_MIN_LETTERS = 50
#: Pages after which a file is reopened: PDFium caches everything it has parsed.
_MAX_USES = 500
_OCR_SCALE = 150 / 72  # pixels per point
_MAX_OCR_PIXELS = 25_000_000


class _OpenFile(NamedTuple):
    key: tuple[str, int, int]
    document: Any
    uses: Iterator[int]


class _Titles(NamedTuple):
    document: Any
    by_page: bookmarks.Titles


class _KeptPage(NamedTuple):
    document: Any
    number: int
    page: Any


_last: _OpenFile | None = None
_kept: _KeptPage | None = None
_outline: _Titles | None = None


def open_document(path: Path) -> Any:
    """Return the pypdfium2 document of a file; it stays open until another file is opened."""
    global _last
    stat = path.stat()
    key = (str(path), stat.st_size, stat.st_mtime_ns)
    if _last is None or _last.key != key or next(_last.uses) >= _MAX_USES:
        if _last is None:
            atexit.register(close)  # otherwise pypdfium2 warns at exit
        close()
        _last = _OpenFile(key, _open(path, stat.st_size), count())
    return _last.document


def close() -> None:
    """Close the open file, if any."""
    global _last, _outline
    drop_page()
    _outline = None
    if _last is not None:
        _last.document.close()
        _last = None


def _titles(document: Any) -> bookmarks.Titles:
    """Return the outline of the open file, which is read once."""
    global _outline
    if _outline is None or _outline.document is not document:
        _outline = _Titles(document, bookmarks.titles(document))
    return _outline.by_page


def take_page(document: Any, number: int) -> Any:
    """Return a page, to be closed by the caller: the kept one, or one that is parsed now."""
    global _kept
    if _kept is not None and _kept.document is document and _kept.number == number:
        page, _kept = _kept.page, None
        return page
    return document[number - 1]


def keep_page(document: Any, number: int, page: Any) -> None:
    """Keep a rendered page: it is usually read next, and parsing it takes as long as drawing it."""
    global _kept
    drop_page()
    _kept = _KeptPage(document, number, page)


def drop_page() -> None:
    """Close the kept page, if any."""
    global _kept
    if _kept is not None:
        _kept.page.close()
        _kept = None


class PdfParser(ocr.OcrParser):
    """PDF files."""

    name = "pdf"
    version = 3  # pages of scans have blocks; drawn edges are joined; formulas are no tables
    library = "pypdfium2"

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Count the pages of a file and compute the key of each."""
        length = len(open_document(path))
        if length > MAX_PAGES:
            raise Unreadable(f"{path.name}: has {length:,} pages (at most {MAX_PAGES:,}).")
        if not length:
            raise Unreadable(f"{path.name}: has no pages.")
        found = page_keys.compute(path, length)
        if found is None:
            return Outline(media_type, "page", length)
        keys = bookmarks.with_titles(found.keys, _titles(open_document(path)))
        return Outline(media_type, "page", length, keys, found.scans)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the requested pages, one at a time."""
        for number in range(request.first, request.last + 1):
            try:
                yield _read_page(open_document(request.path), number, request)
            except QuireError as error:
                if not isinstance(error, Unreadable):
                    raise
                yield PageFailure(number, f"page {number}: {error}")
            except MemoryError:
                yield PageFailure(number, f"page {number}: needs more memory than this worker has.")
            except Exception as error:
                yield PageFailure(number, f"page {number}: cannot be read ({error}).")


def render(page: Any, scale: float, max_pixels: int) -> "npt.NDArray[np.uint8]":
    """Render a page as BGR pixels; the scale is reduced to stay below `max_pixels`."""
    width, height = page.get_size()
    scale = min(scale, (max_pixels / max(width * height, 1.0)) ** 0.5)
    # A long, narrow page has few pixels, but bitmaps have at least one on each side.
    scale = min(scale, 30_000 / max(width, height, 1.0))
    bitmap = page.render(scale=scale, draw_annots=False, may_draw_forms=False)
    try:
        return bitmap.to_numpy().copy()  # type: ignore[no-any-return]
    finally:
        bitmap.close()


def _open(path: Path, size: int) -> Any:
    import pypdfium2
    import pypdfium2.raw

    if not size:
        raise Unreadable(f"{path.name}: is empty (0 bytes).")
    import_module("pikepdf")  # a process that reads pages will soon inspect another file
    with contextlib.suppress(pypdfium2.PdfiumError):
        return pypdfium2.PdfDocument(path)
    # PDFium reports the error code of an earlier failure if the latest one set none.
    with contextlib.suppress(pypdfium2.PdfiumError):
        pypdfium2.PdfDocument(b"none")  # resets it
    try:
        return pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        if error.err_code in (pypdfium2.raw.FPDF_ERR_PASSWORD, pypdfium2.raw.FPDF_ERR_SECURITY):
            raise Unreadable(
                f"{path.name}: is protected by a password. "
                "Remove the protection and ingest it again."
            ) from error
        raise Unreadable(
            f"{path.name}: is damaged or cut off and cannot be opened as PDF."
        ) from error


def _read_page(document: Any, number: int, request: ReadRequest) -> Page:
    page = take_page(document, number)
    try:
        width, height = page.get_size()
        found = pdf_text.extract(page)
        if request.options.ocr == "always" or _needs_ocr(page, found.text, width * height):
            return _ocr_page(page, number, request)
        titles = _titles(document).get(number, ())
        return Page(
            number, found.text, word_boxes.pack(found.boxes, found.breaks),
            round(width, 2), round(height, 2), blocks=_blocks(page, found, titles),
        )  # fmt: skip
    finally:
        page.close()


def _blocks(page: Any, found: pdf_text.PageText, titles: Sequence[tuple[str, int]]) -> bytes:
    """Return the packed structure of a page."""
    height = page.get_height()
    left, top, wide, high = found.boxes.T
    if found.breaks:
        spans = word_boxes.spans(found.text, found.breaks)
        texts = [found.text[start:stop] for start, stop in spans]
    else:
        texts = found.text.split()
    if len(texts) != len(found.boxes):
        return b""
    words = lines.Words(texts, left, top, left + wide, top + high, found.bold, lines.kinds(texts))
    return pack(structure.blocks(words, height, titles, partial(rulings.drawn, page)))


def _needs_ocr(page: Any, text: str, area: float) -> bool:
    if len(text) >= 2 * _MIN_LETTERS and "\ufffd" not in text:
        return False
    letters = sum(map(str.isalnum, text))
    if letters >= _MIN_LETTERS and text.count("\ufffd") < letters:
        return False
    if not letters:
        return any(True for _ in page.get_objects(max_depth=1))
    if text.count("\ufffd") >= letters:
        return True
    import pypdfium2.raw

    largest = 0.0
    for image in page.get_objects(filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        with contextlib.suppress(Exception):  # an image without bounds has no area
            left, bottom, right, top = image.get_bounds()
            largest = max(largest, (right - left) * (top - bottom))
    return largest > area / 2


def _ocr_page(page: Any, number: int, request: ReadRequest) -> Page:
    width, height = (round(side, 2) for side in page.get_size())
    blank = Page(number, "", width=width, height=height, via="none")
    if not ocr.is_enabled(request.options.ocr):
        return blank
    pixels = render(page, _OCR_SCALE, _MAX_OCR_PIXELS)
    if pixels.min() == pixels.max():
        return blank._replace(via="text")
    return ocr.read_page(number, pixels, width, height, request.known_image)
