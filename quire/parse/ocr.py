"""Optical character recognition with RapidOCR on one thread; loaded at the first image.

Pages may be rotated. Text detection on a small copy tells horizontal from vertical lines, and
the model that classifies single lines tells upright from upside down, so an upright page costs
little extra. The page is then rotated as needed and read, and the boxes are rotated back.

Words are where the recogniser saw their characters. Blocks follow from words and boxes alone, as
in a PDF, so a page that an earlier release recognised gets them without another OCR.
"""

import functools
import os
from collections.abc import Callable, Sequence
from hashlib import blake2b
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.errors import Permanent, install_hint
from quire.model import blocks
from quire.model.blocks import BlockSource
from quire.model.pages import Page
from quire.parse import word_boxes
from quire.parse.parser import BuiltinParser, OcrMode, ReadOptions, installed_version

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]
    Boxes = npt.NDArray[np.float64]

VERSION = 1
_THUMBNAIL_SIDE = 600  # pixels: enough to detect the direction of lines
_VOTING_LINES = 9
_MIN_COLUMN_LINES = 4
#: By how much a line of larger letters is higher, and its letters wider; capitals are wider.
_HIGHER, _WIDER, _UPPER = 1.15, 1.15, 1.3
_MUCH_HIGHER, _FEW = 1.5, 8  # for lines of few characters

Box = tuple[float, float, float, float]  # left, top, right, bottom


class _Line(NamedTuple):
    text: str
    box: Box
    words: tuple[tuple[float, float], ...]  # left and right of each


def is_installed() -> bool:
    """Return whether OCR is available in this installation."""
    return find_spec("rapidocr") is not None and find_spec("onnxruntime") is not None


def engine() -> str | None:
    """Return the OCR engine with its version, or None if it is not installed."""
    return f"rapidocr {installed_version('rapidocr')}, {VERSION}" if is_installed() else None


class OcrParser(BuiltinParser):
    """Base of the parsers that fall back to OCR, which then decides the text too."""

    def recipe(self, media_type: str, options: ReadOptions) -> dict[str, Any]:
        """Return everything besides the file that decides the text of its pages."""
        used = {"ocr": options.ocr, "engine": None if options.ocr == "never" else engine()}
        return super().recipe(media_type, options) | used


def is_enabled(mode: OcrMode) -> bool:
    """Return whether to run OCR. Raises Permanent if it is required but not installed."""
    if mode == "never":
        return False
    if not is_installed() and mode == "always":
        raise Permanent(f"ocr=always: RapidOCR is not installed. Run: {install_hint('ocr')}")
    return is_installed()


def read_page(
    number: int,
    pixels: "Pixels",
    width: float,
    height: float,
    known_image: Callable[[str], bool] | None = None,
) -> Page:
    """Read the image (BGR) of a page of width × height points.

    If `known_image` returns True for the digest of the image, the text stays empty: the caller
    has it already.
    """
    digest = blake2b(repr(pixels.shape).encode(), digest_size=16)
    digest.update(pixels.tobytes())
    key = digest.hexdigest()
    page = Page(number, "", width=width, height=height, via="ocr", image_key=key)
    if known_image is not None and known_image(key):
        return page
    turns = _upright_turns(pixels)
    lines = _read_lines(_rotate(pixels, turns))
    text = "\n".join(line.text for line in lines)
    if not text:
        return page
    upright = _word_boxes(lines)
    boxes = _rotate_back(upright, turns, pixels.shape)
    boxes *= [width / pixels.shape[1], height / pixels.shape[0]] * 2
    found = _blocks(text.split(), upright, pixels.shape[turns % 2])
    return page._replace(text=text, words=word_boxes.pack(boxes), blocks=found)


def blocks_of(text: str, words: bytes, height: float) -> bytes:
    """Return the blocks of a page that was recognised earlier."""
    import numpy as np

    found = word_boxes.unpack(words, text)
    if not found:
        return b""
    return _blocks([each.text for each in found], np.array([each[:4] for each in found]), height)


def _blocks(texts: Sequence[str], boxes: "Boxes", height: float) -> bytes:
    """Find the blocks of words, whose boxes are those of their lines in height."""
    import numpy as np

    from quire.parse.pdf import lines, structure

    left, top, wide, high = boxes.T
    middle, high = top + high / 2, _sizes(texts, boxes)
    bold = np.zeros(len(texts), bool)
    words = lines.Words(
        texts, left, middle - high / 2, left + wide, middle + high / 2, bold, lines.kinds(texts)
    )
    return blocks.pack(
        [each._replace(source=BlockSource.OCR) for each in structure.blocks(words, height)]
    )


def _sizes(texts: Sequence[str], boxes: "Boxes") -> "Boxes":
    """Return the height of each word's line: the usual one, unless its letters are of another size.

    The detector draws boxes of lines in one size up to a third higher or lower. How wide letters
    are tells more, but depends on the letters: both must agree.
    """
    import numpy as np

    edges = np.flatnonzero(np.any(np.diff(boxes[:, [1, 3]], axis=0) != 0, axis=1)) + 1
    lengths = np.array([len(text) for text in texts], float)
    starts = np.concatenate([[0], edges])
    counts = np.add.reduceat(lengths, starts)
    widths = np.add.reduceat(boxes[:, 2], starts) / counts
    stops = [*edges.tolist(), len(texts)]
    is_upper = ["".join(texts[a:b]).isupper() for a, b in zip(starts.tolist(), stops, strict=True)]
    widths = np.where(is_upper, widths / _UPPER, widths)
    usual_height, usual_width = (_median(each, counts) for each in (boxes[starts, 3], widths))
    higher, wider = boxes[starts, 3] / usual_height, widths / usual_width
    is_larger = (higher > _HIGHER) & (wider > _WIDER)
    is_smaller = (higher < 1 / _HIGHER) & (wider < 1 / _WIDER)
    is_larger |= (higher > _MUCH_HIGHER) & (wider > 1) & (counts < _FEW)
    sizes = np.where(is_larger | is_smaller, (higher + wider) / 2, 1.0) * usual_height
    return np.repeat(sizes, np.diff([*starts.tolist(), len(texts)]))


def _median(values: "Boxes", weights: "Boxes") -> float:
    import numpy as np

    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return max(float(values[order][np.searchsorted(total, total[-1] / 2)]), 1e-6)


@functools.cache
def rapidocr() -> Any:
    """Return the RapidOCR engine of this process."""
    # Set before the import: onnxruntime would send telemetry and write to the home directory.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    from rapidocr import RapidOCR

    return RapidOCR(
        params={
            "Global.log_level": "critical",
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            "Det.limit_type": "max",
            "Det.limit_side_len": 960,
        }
    )


def _rotate(pixels: "Pixels", turns: int) -> "Pixels":
    """Rotate by quarter turns, counterclockwise."""
    import numpy as np

    return np.ascontiguousarray(np.rot90(pixels, turns)) if turns else pixels


def _upright_turns(pixels: "Pixels") -> int:
    """Return the counterclockwise quarter turns that make the lines upright."""
    import numpy as np

    step = max(1, round(max(pixels.shape[:2]) / _THUMBNAIL_SIDE))
    small = np.ascontiguousarray(pixels[::step, ::step])
    found = _boxes(rapidocr()(small, use_det=True, use_cls=False, use_rec=False))
    if not len(found):
        return 0
    wide, tall = (found[:, 2] - found[:, 0]), (found[:, 3] - found[:, 1])
    is_vertical = tall[tall > 1.5 * wide].sum() > wide[wide > 1.5 * tall].sum()
    turns = int(is_vertical)
    if is_vertical:
        left, top, right, bottom = found.T
        found = np.stack([top, small.shape[1] - right, bottom, small.shape[1] - left], axis=1)
    return turns + 2 * _is_upside_down(_rotate(pixels, turns), found * step)


def _boxes(found: Any) -> "Boxes":
    """Return left, top, right, bottom of each detected line."""
    import numpy as np

    if found.boxes is None:
        return np.zeros((0, 4))
    quads = np.asarray(found.boxes, np.float64)
    return np.concatenate([quads.min(1), quads.max(1)], axis=1)


def _is_upside_down(pixels: "Pixels", boxes: "Boxes") -> bool:
    """Classify the widest lines; if they vote upside down, compare the confidence both ways."""
    import numpy as np

    widest = np.argsort(boxes[:, 0] - boxes[:, 2])[:_VOTING_LINES]
    crops = []
    for left, top, right, bottom in boxes[widest].astype(int).clip(0).tolist():
        # The classifier's input is four times as wide as high; a whole line would be squeezed.
        near = min(right, left + 5 * (bottom - top))
        crop = pixels[top : bottom + 1, left : near + 1]
        if min(crop.shape[:2]) >= 4:
            crops.append(np.ascontiguousarray(crop))
    votes = 0.0
    for crop in crops:
        found = rapidocr()(crop, use_det=False, use_cls=True, use_rec=False).cls_res
        label, score = found[0]
        votes += float(score) if label == "180" else -float(score)
    if votes <= 0:
        return False
    asked = crops[:3]
    return sum(_confidence(_rotate(c, 2)) for c in asked) > sum(_confidence(c) for c in asked)


def _confidence(line: "Pixels") -> float:
    found = rapidocr()(line, use_det=False, use_cls=False, use_rec=True)
    return float(found.scores[0]) if found.scores else 0.0


def _read_lines(pixels: "Pixels") -> list[_Line]:
    found = _recognised(pixels)
    texts, characters = found.txts or (), found.word_results or ()
    if len(characters) != len(texts):
        characters = ((),) * len(texts)
    lines = [
        _line(text, tuple(box), signs)
        for text, box, signs in zip(texts, _boxes(found).tolist(), characters, strict=True)
    ]
    lines = [line for line in lines if line.text]
    order = reading_order([line.box for line in lines], pixels.shape[1])
    return [lines[index] for index in order]


def _recognised(pixels: "Pixels") -> Any:
    read = functools.partial(rapidocr(), pixels, use_det=True, use_cls=False, use_rec=True)
    try:
        return read(return_word_box=True, return_single_char_box=True)
    except IndexError:  # RapidOCR 3.10 raises it if a line is nothing but blanks
        return read(return_word_box=False)


def _line(read: str, box: Box, characters: Sequence[Any]) -> _Line:
    """Return a line with the places of its words."""
    text = " ".join(read.replace("\0", " ").split())
    signs = [(sign, quad[0][0], quad[1][0]) for sign, _, quad in characters]
    words = text.split()
    if "".join(sign for sign, _, _ in signs) != "".join(words):
        # The recogniser tells no places: a word has its share of the line.
        width = (box[2] - box[0]) / max(len(text), 1)
        spans = word_boxes.spans(text)
        return _Line(text, box, tuple((box[0] + a * width, box[0] + b * width) for a, b in spans))
    found, at = [], 0
    for word in words:
        inside = signs[at : at + len(word)]
        at += len(word)
        found.append((float(inside[0][1]), float(max(inside[-1][2], inside[0][1] + 1))))
    return _Line(text, box, tuple(found))


def _word_boxes(lines: list[_Line]) -> "Boxes":
    """Return x, y, width, height of each word; it is as high as its line."""
    import numpy as np

    rows = [
        (left, line.box[1], right - left, line.box[3] - line.box[1])
        for line in lines
        for left, right in line.words
    ]
    return np.array(rows, np.float64).reshape(-1, 4)


def _rotate_back(boxes: "Boxes", turns: int, shape: tuple[int, ...]) -> "Boxes":
    """Return boxes of the rotated image in the coordinates of the original."""
    import numpy as np

    x, y, width, height = boxes.T
    rows, columns = shape[:2]
    original = {
        0: (x, y, width, height),
        1: (columns - y - height, x, height, width),
        2: (columns - x - width, rows - y - height, width, height),
        3: (y, rows - x - width, height, width),
    }[turns]
    return np.stack(original, axis=1)


def reading_order(boxes: Sequence[Box], width: float) -> list[int]:
    """Return the indexes of the boxes in reading order: down, column after column."""
    order = _row_order(boxes)
    gutter = _gutter(boxes, width)
    if gutter is None:
        return order
    # A line across the gutter, such as a title, ends the columns above it.
    done: list[int] = []
    left: list[int] = []
    right: list[int] = []
    for index in order:
        if boxes[index][2] <= gutter:
            left.append(index)
        elif boxes[index][0] >= gutter:
            right.append(index)
        else:
            done += [*left, *right, index]
            left, right = [], []
    return [*done, *left, *right]


def _row_order(boxes: Sequence[Box]) -> list[int]:
    """Return the indexes row by row, each row from left to right."""
    rows: list[list[int]] = []
    for index in sorted(range(len(boxes)), key=lambda i: boxes[i][1] + boxes[i][3]):
        middle = (boxes[index][1] + boxes[index][3]) / 2
        if rows and boxes[rows[-1][0]][1] <= middle <= boxes[rows[-1][0]][3]:
            rows[-1].append(index)
        else:
            rows.append([index])
    return [index for row in rows for index in sorted(row, key=lambda i: boxes[i][0])]


def _gutter(boxes: Sequence[Box], width: float) -> float | None:
    """Return the x between two columns of prose: long lines on both sides, few across."""
    for share in (0.5, 0.48, 0.52, 0.45, 0.55):
        x = width * share
        sides = [b for b in boxes if b[2] <= x], [b for b in boxes if b[0] >= x]
        across = len(boxes) - len(sides[0]) - len(sides[1])
        if min(map(len, sides)) < _MIN_COLUMN_LINES or across > min(map(len, sides)) / 2:
            continue
        # Short lines are table cells, which are read row by row.
        if all(sum(b[2] - b[0] for b in s) / len(s) > width / 4 for s in sides):
            return x
    return None
