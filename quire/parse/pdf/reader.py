"""PDF files by PDFium: their outline, the text of their pages, and pictures of pages without.

The last file stays open, because the ranges of one file are read one after the other by the same
process. A page that fails is reported in its place; the pages after it are read.
"""

import atexit
import contextlib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.errors import QuireError, Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import ocr, word_boxes
from quire.parse.options import Options
from quire.parse.pdf import page_keys
from quire.parse.pdf import text as pdf_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

VERSION = 1
MEDIA_TYPE = "application/pdf"
MOST_PAGES = 100_000

#: Below this many letters a page that is mostly a picture is a scan with a stamp on it.
_FEW_LETTERS = 50
#: Pages after which a file is opened anew: PDFium keeps what it has parsed of it.
_MOST_USES = 500
_RECOGNISE_AT = 150 / 72  # pixels a point
_MOST_PIXELS = 25_000_000


class _Opened(NamedTuple):
    key: tuple[str, int, int]
    document: Any
    uses: Iterator[int]


_last: _Opened | None = None


def opened(path: Path) -> Any:
    """Return the pypdfium2 document of a file, open until another one is asked for."""
    global _last
    stat = path.stat()
    key = (str(path), stat.st_size, stat.st_mtime_ns)
    if _last is None or _last.key != key or next(_last.uses) >= _MOST_USES:
        if _last is None:
            atexit.register(close)  # or pypdfium2 complains at the end of the process
        close()
        _last = _Opened(key, _open(path, stat.st_size), count())
    return _last.document


def close() -> None:
    """Close the file that was read last, if one is open."""
    global _last
    if _last is not None:
        _last.document.close()
        _last = None


def look(path: Path, media_type: str = MEDIA_TYPE) -> Outline:
    """Count the pages of a file and take the key of each."""
    length = len(opened(path))
    if length > MOST_PAGES:
        raise Unreadable(f"{path.name}: has {length:,} pages (at most {MOST_PAGES:,}).")
    if not length:
        raise Unreadable(f"{path.name}: has no pages.")
    found = page_keys.survey(path, length)
    if found is None:
        return Outline(media_type, "page", length)
    return Outline(media_type, "page", length, found.keys, found.pictures)


def read(
    path: Path,
    media_type: str,
    options: Options,
    first: int,
    last: int,
    *,
    known_image: Callable[[str], bool] | None = None,
) -> Iterator[Page | PageFailure]:
    """Yield the pages first…last, one at a time."""
    for number in range(first, last + 1):
        try:
            yield _read_page(opened(path), number, options, known_image)
        except QuireError as error:
            if not isinstance(error, Unreadable):
                raise
            yield PageFailure(number, f"page {number}: {error}")
        except MemoryError:
            yield PageFailure(number, f"page {number}: needs more memory than this worker has.")
        except Exception as error:
            yield PageFailure(number, f"page {number}: cannot be read ({error}).")


def render(page: Any, scale: float, most_pixels: int) -> "npt.NDArray[np.uint8]":
    """Draw a page as BGR pixels, smaller than asked where it would be more than `most_pixels`."""
    width, height = page.get_size()
    scale = min(scale, (most_pixels / max(width * height, 1.0)) ** 0.5)
    # A page of a kilometre by a hair has few pixels, but still at least one a side.
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
    page_keys.load()  # who reads pages of a file is soon asked to look at another
    with contextlib.suppress(pypdfium2.PdfiumError):
        return pypdfium2.PdfDocument(path)
    # PDFium keeps the reason of an earlier failure where a later one has none of its own.
    with contextlib.suppress(pypdfium2.PdfiumError):
        pypdfium2.PdfDocument(b"none")
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


def _read_page(
    document: Any, number: int, options: Options, known_image: Callable[[str], bool] | None
) -> Page:
    page = document[number - 1]
    try:
        width, height = page.get_size()
        found = pdf_text.written(page)
        if options.ocr == "always" or _needs_ocr(page, found.text, width * height):
            return _recognised(page, number, options, known_image)
        packed = word_boxes.pack(found.boxes, found.cuts)
        return Page(number, found.text, packed, round(width, 2), round(height, 2))
    finally:
        page.close()


def _needs_ocr(page: Any, text: str, area: float) -> bool:
    if len(text) >= 2 * _FEW_LETTERS and "\ufffd" not in text:
        return False
    letters = sum(map(str.isalnum, text))
    if letters >= _FEW_LETTERS and text.count("\ufffd") < letters:
        return False
    if not letters:
        return any(True for _ in page.get_objects(max_depth=1))
    return text.count("\ufffd") >= letters or _largest_image(page) > area / 2


def _largest_image(page: Any) -> float:
    import pypdfium2.raw

    largest = 0.0
    for image in page.get_objects(filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE], max_depth=3):
        with contextlib.suppress(Exception):  # an image without bounds covers nothing
            left, bottom, right, top = image.get_bounds()
            largest = max(largest, (right - left) * (top - bottom))
    return largest


def _recognised(
    page: Any, number: int, options: Options, known_image: Callable[[str], bool] | None
) -> Page:
    width, height = (round(side, 2) for side in page.get_size())
    blank = Page(number, "", width=width, height=height, via="none")
    if not ocr.usable(options):
        return blank
    pixels = render(page, _RECOGNISE_AT, _MOST_PIXELS)
    if pixels.min() == pixels.max():
        return blank._replace(via="text")
    found = ocr.recognise(pixels, width, height, known_image)
    return Page(number, *found[:2], width, height, "ocr", image_key=found.image_key)
