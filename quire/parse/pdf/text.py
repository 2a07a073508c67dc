"""Extracts the text of a PDF page and a box for each word, calling PDFium through ctypes.

Two calls per word, for the loose boxes (font height) of its first and last character, write into
one preallocated array; calls per character would take twice as long. The calls are made by `map`
with prebuilt arguments: converting them takes ctypes longer than PDFium takes to answer.
"""

import ctypes
import functools
import re
import unicodedata
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.errors import Unreadable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Boxes = npt.NDArray[np.float64]

MAX_WORDS = 100_000

#: PDFium's marker where it joined a word hyphenated across two lines.
_JOINT = "\x02"
_NEEDS_CLEANING = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\xa0\ud800-\udfff\u2028\u2029\ufffe\uffff]"
)
_SPACES = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 161)], " ")
_REPLACEMENTS: dict[int, str] = _SPACES | {0x02: _JOINT, 0xFFFE: _JOINT, 0xFFFF: " "}
_REPLACEMENTS |= {0x2028: "\n", 0x2029: "\n"}
_REPLACEMENTS |= dict.fromkeys(range(55296, 57344), "�")
_REAL_HYPHEN = re.compile(rf"(?<=[^\W_]){_JOINT}(?=[A-Z0-9])|(?<=\d){_JOINT}(?=\w)")
_FIRST_NON_SPACE = 0x3001  # no code point from here on is a space
_BATCH = 4_096  # boxes per batch of calls
_BUFFER_BYTES = 1 << 17  # longer texts get a buffer of their own
_EXCESS_SPACE = re.compile(r"(?<![ \t])[ \t]++(?=\n)|\n{3,}|\r\n?")
_EXCESS_SPACE_SIGNS = (" \n", "\t\n", "\n\n\n", "\r")


class PageText(NamedTuple):
    """The text of a page with a box for each word."""

    text: str
    boxes: "Boxes"
    breaks: list[int]  # offsets in `text` where a hyphenated word continues on the next line
    bold: "npt.NDArray[np.bool_]"  # for each word whether its line is bold


class _Functions(NamedTuple):
    """PDFium functions, called without releasing the GIL: PDFium is not thread-safe anyway."""

    count: Any
    text: Any
    index: Any
    bounds: Any
    font: Any


@functools.cache
def _functions() -> _Functions:
    import pypdfium2.raw as raw

    pointer, number = ctypes.c_void_p, ctypes.c_int

    def bare(function: Any, *arguments: Any) -> Any:
        address = ctypes.cast(function, pointer).value or 0
        return ctypes.PYFUNCTYPE(number, *arguments)(address)

    return _Functions(
        bare(raw.FPDFText_CountChars, pointer),
        bare(raw.FPDFText_GetText, pointer, number, number, pointer),
        bare(raw.FPDFText_GetCharIndexFromTextIndex, pointer, number),
        bare(raw.FPDF_GetPageBoundingBox, pointer, pointer),
        bare(raw.FPDFText_GetFontInfo, pointer, number, pointer, ctypes.c_ulong, pointer),
    )


def extract(page: Any) -> PageText:
    """Return the text and word boxes of a pypdfium2 page, as the rotated page is displayed."""
    textpage = page.get_textpage()
    try:
        handle = ctypes.cast(textpage.raw, ctypes.c_void_p).value
        count, raw = _raw_text(handle)
        ends = _word_ends(raw)
        if len(ends) > 2 * MAX_WORDS:
            raise Unreadable(f"{len(ends) // 2:,} words on one page (at most {MAX_WORDS:,}).")
        if count != len(raw):  # text and page differ in some characters
            ends = list(map(_functions().index, repeat(handle), ends))
        boxes = displayed(page, _corners(handle, ends))
        bold = _bold(handle, ends, boxes)
    finally:
        textpage.close()
    text, breaks = _normalize(raw)
    return PageText(text, boxes, breaks, bold)


def _raw_text(textpage: int | None) -> tuple[int, str]:
    pdfium = _functions()
    count = pdfium.count(textpage)
    if count <= 0:
        return 0, ""
    size = count * 4 + 4
    buffer = _buffer() if size <= _BUFFER_BYTES else ctypes.create_string_buffer(size)
    got = pdfium.text(textpage, 0, count, buffer)
    raw = ctypes.string_at(buffer, max(0, got - 1) * 2).decode("utf-16-le", "replace")
    # One-to-one replacements: offsets in `raw` are character indexes in PDFium.
    return count, raw.translate(_REPLACEMENTS) if _NEEDS_CLEANING.search(raw) else raw


@functools.cache
def _buffer() -> Any:
    """Return one shared buffer: to ctypes, each buffer size is a new type."""
    return ctypes.create_string_buffer(_BUFFER_BYTES)


@functools.cache
def _separators() -> "npt.NDArray[np.bool_]":
    """Return for each code point whether it separates words."""
    import numpy as np

    return np.array(
        [chr(code).isspace() or chr(code) == _JOINT for code in range(_FIRST_NON_SPACE)] + [False]
    )


def _word_ends(raw: str) -> list[int]:
    """Return the indexes of the first and last character of each word, alternating."""
    import numpy as np

    codes = np.frombuffer(raw.encode("utf-32-le"), "<u4")
    separator = np.ones(len(codes) + 2, np.bool_)
    separator[1:-1] = _separators().take(codes, mode="clip")
    edges = np.flatnonzero(separator[1:] != separator[:-1])
    edges[1::2] -= 1
    found: list[int] = edges.tolist()
    return found


class _BoxCalls(NamedTuple):
    """The function that returns a character's box, and preallocated room for its results."""

    get_box: Any  # without argtypes: passes arguments unconverted
    results: Any
    pointers: list[Any]  # to each result
    rows: "npt.NDArray[np.float32]"  # view of the results


@functools.cache
def _box_calls() -> _BoxCalls:
    import numpy as np
    import pypdfium2.raw as raw

    address = ctypes.cast(raw.FPDFText_GetLooseCharBox, ctypes.c_void_p).value or 0
    results = (ctypes.c_float * (4 * _BATCH))()  # left, top, right, bottom of each
    pointers = [ctypes.byref(results, 16 * index) for index in range(_BATCH)]
    rows = np.ctypeslib.as_array(results).reshape(-1, 4)
    return _BoxCalls(ctypes.PYFUNCTYPE(ctypes.c_int)(address), results, pointers, rows)


def _corners(textpage: int | None, ends: list[int]) -> "Boxes":
    """Return the columns left, bottom, right, top of the words, in unrotated page space."""
    import numpy as np

    get_box, results, pointers, rows = _box_calls()
    page, found = ctypes.c_void_p(textpage), np.empty((4, len(ends)), np.float64)
    for first in range(0, len(ends), _BATCH):
        some = ends[first : first + _BATCH]
        ctypes.memset(results, 0, 16 * len(some))
        deque(map(get_box, repeat(page), some, pointers), maxlen=0)
        found[:, first : first + len(some)] = rows[: len(some)].T
    one, other = found[:, ::2], found[:, 1::2]
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.array([low[0], low[3], high[2], high[1]])


def _bold(textpage: int | None, ends: list[int], boxes: "Boxes") -> "npt.NDArray[np.bool_]":
    """Tell of each word whether the first and the last word of its line are bold.

    Asking for the font of every word would take longer than reading the text.
    """
    import numpy as np

    count = len(boxes)
    if not count:
        return np.zeros(0, np.bool_)
    middle = boxes[:, 1] + boxes[:, 3] / 2
    starts = np.ones(count + 1, np.bool_)
    np.greater(np.abs(np.diff(middle)), boxes[1:, 3] / 2, out=starts[1:-1])
    at = np.flatnonzero(starts)
    first, last = at[:-1], at[1:] - 1
    is_bold = np.zeros(len(first), np.bool_)
    for line, (one, other) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        if _is_bold(textpage, ends[2 * one]):
            is_bold[line] = one == other or _is_bold(textpage, ends[2 * other + 1])
    return is_bold.repeat(np.diff(at))


_FONT_NAME_BYTES = 128
_FORCE_BOLD = 1 << 18
_BOLD = re.compile(rb"bold|black|heavy|demi|cmbx|sfbx|[-,]bd\b", re.IGNORECASE)


@functools.cache
def _font_answer() -> tuple[Any, Any]:
    return ctypes.create_string_buffer(_FONT_NAME_BYTES), ctypes.c_int()


def _is_bold(textpage: int | None, character: int) -> bool:
    name, flags = _font_answer()
    flags.value = 0
    length = _functions().font(textpage, character, name, _FONT_NAME_BYTES, ctypes.byref(flags))
    if flags.value & _FORCE_BOLD:
        return True
    return 0 < length <= _FONT_NAME_BYTES and _names_bold(name.value)


@functools.lru_cache(256)
def _names_bold(name: bytes) -> bool:
    return _BOLD.search(name) is not None


def displayed(page: Any, corners: "Boxes") -> "Boxes":
    """Convert corners (left, bottom, right, top) to boxes from the top left of the shown page."""
    import numpy as np

    bounds = (ctypes.c_float * 4)()  # left, top, right, bottom
    _functions().bounds(ctypes.cast(page.raw, ctypes.c_void_p), bounds)
    left, top, right, bottom = bounds
    x0, y0, x1, y1 = corners
    rotation = page.get_rotation()
    if rotation == 90:
        sides = (y0 - bottom, x0 - left, y1 - bottom, x1 - left)
    elif rotation == 180:
        sides = (right - x1, y0 - bottom, right - x0, y1 - bottom)
    elif rotation == 270:
        sides = (top - y1, right - x1, top - y0, right - x0)
    else:
        sides = (x0 - left, top - y1, x1 - left, top - y0)
    wide, high = right - left, top - bottom
    size = np.array([(high, wide) if rotation % 180 else (wide, high)]).T
    # Words may lie beyond the edge; boxes are stored in tenths and must stay on the page.
    boxes = np.array(sides).reshape(2, 2, -1).clip(0, np.floor(size * 10) / 10).reshape(4, -1)
    boxes[2:] -= boxes[:2]
    return boxes.T


def _normalize(raw: str) -> tuple[str, list[int]]:
    """Return the text with normalized white space, and the offsets of hyphenation breaks.

    Only white space between words changes, so that word *i* of the text stays word *i* of the page.
    """
    text = raw.replace("\r\n", "\n").strip()
    if any(sign in text for sign in _EXCESS_SPACE_SIGNS):
        text = _EXCESS_SPACE.sub(_collapse, text)
    if not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    if _JOINT not in text:
        return text, []
    text = _REAL_HYPHEN.sub("-" + _JOINT, text)
    offsets = [match.start() for match in re.finditer(_JOINT, text)]
    return text.replace(_JOINT, ""), [offset - before for before, offset in enumerate(offsets)]


def _collapse(found: re.Match[str]) -> str:
    return {" ": "", "\t": "", "\r": "\n"}.get(found[0][0], "\n\n")
