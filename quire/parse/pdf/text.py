"""The text of a PDF page and a box for each word of it, asked of PDFium by bare ctypes.

Two calls a word, for the loose boxes (as high as the font) of its first and last character, write
straight into one block of numbers; anything per character costs twice as much. The calls are made
by `map`, with arguments that are made once: ctypes takes longer to convert them than PDFium to
answer.
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

MOST_WORDS = 100_000

#: Where PDFium joined the halves of a word that a hyphen split over two lines.
_JOINT = "\x02"
_ODD = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\xa0\ud800-\udfff\u2028\u2029\ufffe\uffff]")
_SPACES = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 161)], " ")
_CLEAN: dict[int, str] = _SPACES | {0x02: _JOINT, 0xFFFE: _JOINT, 0xFFFF: " "}
_CLEAN |= {0x2028: "\n", 0x2029: "\n"}
_CLEAN |= dict.fromkeys(range(55296, 57344), "�")
_REAL_HYPHEN = re.compile(rf"(?<=[^\W_]){_JOINT}(?=[A-Z0-9])|(?<=\d){_JOINT}(?=\w)")
_BLANK = 0x3001  # no character from here on is a space
_AT_ONCE = 4_096  # boxes asked for in one go
_ROOM = 1 << 17  # bytes of a text that needs no buffer of its own
_RAGGED = re.compile(r"[ \t]+(?=\n)|\n{3,}|\r\n?")
_UNTIDY = (" \n", "\t\n", "\n\n\n", "\r")


class Written(NamedTuple):
    """What is written on a page."""

    text: str
    boxes: "Boxes"
    cuts: list[int]


class _Calls(NamedTuple):
    """PDFium's functions, called without giving up Python's lock: it has one thread anyway."""

    count: Any
    text: Any
    index: Any
    bounds: Any


@functools.cache
def _calls() -> _Calls:
    import pypdfium2.raw as raw

    pointer, number = ctypes.c_void_p, ctypes.c_int

    def bare(function: Any, *arguments: Any) -> Any:
        address = ctypes.cast(function, pointer).value or 0
        return ctypes.PYFUNCTYPE(number, *arguments)(address)

    return _Calls(
        bare(raw.FPDFText_CountChars, pointer),
        bare(raw.FPDFText_GetText, pointer, number, number, pointer),
        bare(raw.FPDFText_GetCharIndexFromTextIndex, pointer, number),
        bare(raw.FPDF_GetPageBoundingBox, pointer, pointer),
    )


def written(page: Any) -> Written:
    """Return the text and the boxes of a pypdfium2 page, in the space of the upright page."""
    textpage = page.get_textpage()
    try:
        place = ctypes.cast(textpage.raw, ctypes.c_void_p).value
        count, raw = _raw_text(place)
        ends = _ends(raw)
        if len(ends) > 2 * MOST_WORDS:
            raise Unreadable(f"{len(ends) // 2:,} words on one page (at most {MOST_WORDS:,}).")
        corners = _corners(place, ends, direct=count == len(raw))
    finally:
        textpage.close()
    text, cuts = _tidy(raw)
    return Written(text, _upright(page, corners), cuts)


def _raw_text(place: int | None) -> tuple[int, str]:
    calls = _calls()
    count = calls.count(place)
    if count <= 0:
        return 0, ""
    room = count * 4 + 4
    buffer = _buffer() if room <= _ROOM else ctypes.create_string_buffer(room)
    got = calls.text(place, 0, count, buffer)
    raw = ctypes.string_at(buffer, max(0, got - 1) * 2).decode("utf-16-le", "replace")
    # One character stays one character: the places in `raw` are asked of PDFium.
    return count, raw.translate(_CLEAN) if _ODD.search(raw) else raw


@functools.cache
def _buffer() -> Any:
    """Return where texts are written: a buffer of another size is another type to ctypes."""
    return ctypes.create_string_buffer(_ROOM)


@functools.cache
def _blanks() -> "npt.NDArray[np.bool_]":
    """Tell of each character whether it stands between words."""
    import numpy as np

    return np.array(
        [chr(code).isspace() or chr(code) == _JOINT for code in range(_BLANK)] + [False]
    )


def _ends(raw: str) -> list[int]:
    """Return the places of the first and the last character of each word, one after the other."""
    import numpy as np

    codes = np.frombuffer(raw.encode("utf-32-le"), "<u4")
    blank = np.ones(len(codes) + 2, np.bool_)
    blank[1:-1] = _blanks().take(codes, mode="clip")
    edges = np.flatnonzero(blank[1:] != blank[:-1])
    edges[1::2] -= 1
    found: list[int] = edges.tolist()
    return found


class _Asking(NamedTuple):
    """The function that asks for a box, and where it writes; it takes arguments as they are."""

    box: Any
    answers: Any
    places: list[Any]
    block: "npt.NDArray[np.float32]"  # the answers, a row each


@functools.cache
def _asking() -> _Asking:
    import numpy as np
    import pypdfium2.raw as raw

    address = ctypes.cast(raw.FPDFText_GetLooseCharBox, ctypes.c_void_p).value or 0
    answers = (ctypes.c_float * (4 * _AT_ONCE))()  # left, top, right, bottom of each
    places = [ctypes.byref(answers, 16 * each) for each in range(_AT_ONCE)]
    block = np.ctypeslib.as_array(answers).reshape(-1, 4)
    return _Asking(ctypes.PYFUNCTYPE(ctypes.c_int)(address), answers, places, block)


def _corners(place: int | None, ends: list[int], *, direct: bool) -> "Boxes":
    """Return the columns left, bottom, right, top of the words, as the page is stored."""
    import numpy as np

    if not direct:  # the text has characters that the page has not, or the reverse
        ends = list(map(_calls().index, repeat(place), ends))
    box, answers, places, block = _asking()
    page, found = ctypes.c_void_p(place), np.empty((4, len(ends)), np.float64)
    for first in range(0, len(ends), _AT_ONCE):
        some = ends[first : first + _AT_ONCE]
        ctypes.memset(answers, 0, 16 * len(some))
        deque(map(box, repeat(page), some, places), maxlen=0)
        found[:, first : first + len(some)] = block[: len(some)].T
    one, other = found[:, ::2], found[:, 1::2]
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.array([low[0], low[3], high[2], high[1]])


def _upright(page: Any, corners: "Boxes") -> "Boxes":
    """Turn corners of the stored page into boxes from the upper left of the page as it is seen."""
    import numpy as np

    bounds = (ctypes.c_float * 4)()  # left, top, right, bottom
    _calls().bounds(ctypes.cast(page.raw, ctypes.c_void_p), bounds)
    left, top, right, bottom = bounds
    x0, y0, x1, y1 = corners
    turn = page.get_rotation()
    if turn == 90:
        sides = (y0 - bottom, x0 - left, y1 - bottom, x1 - left)
    elif turn == 180:
        sides = (right - x1, y0 - bottom, right - x0, y1 - bottom)
    elif turn == 270:
        sides = (top - y1, right - x1, top - y0, right - x0)
    else:
        sides = (x0 - left, top - y1, x1 - left, top - y0)
    wide, high = right - left, top - bottom
    size = np.array([(high, wide) if turn % 180 else (wide, high)]).T
    # Words may stand beyond the edge, and boxes are stored in tenths: none may leave the page.
    boxes = np.array(sides).reshape(2, 2, -1).clip(0, np.floor(size * 10) / 10).reshape(4, -1)
    boxes[2:] -= boxes[:2]
    return boxes.T


def _tidy(raw: str) -> tuple[str, list[int]]:
    """Return the text for readers, and where words are joined that stood on two lines.

    Only the space between words changes, so that word *i* of the text stays word *i* of the page.
    """
    text = raw.replace("\r\n", "\n").strip()
    if any(each in text for each in _UNTIDY):
        text = _RAGGED.sub(_ragged, text)
    if not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    if _JOINT not in text:
        return text, []
    text = _REAL_HYPHEN.sub("-" + _JOINT, text)
    places = [match.start() for match in re.finditer(_JOINT, text)]
    return text.replace(_JOINT, ""), [place - before for before, place in enumerate(places)]


def _ragged(found: re.Match[str]) -> str:
    return {" ": "", "\t": "", "\r": "\n"}.get(found[0][0], "\n\n")
