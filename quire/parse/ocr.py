"""Text out of pictures, by RapidOCR on one thread; loaded at the first picture of a process.

A page may lie on its side or upside down. A detection on a small copy tells lying lines from
standing ones, and the model for single lines tells up from down, so that an upright page pays
little; only then is the page read, turned as needed, and its boxes are turned back.
"""

import functools
import os
from collections.abc import Callable
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.errors import Permanent
from quire.parse import word_boxes
from quire.parse.image.reading_order import in_reading_order
from quire.parse.options import Options

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]
    Boxes = npt.NDArray[np.float64]

VERSION = 1
_SMALL = 600  # pixels a side that are enough to see how lines lie
_ASKED = 9  # lines that vote on up and down


class Recognised(NamedTuple):
    """What was read in a picture."""

    text: str
    words: bytes
    image_key: str


class _Line(NamedTuple):
    text: str
    box: tuple[float, float, float, float]  # left, top, right, bottom


def is_installed() -> bool:
    """Tell whether pictures can be read here."""
    return find_spec("rapidocr") is not None and find_spec("onnxruntime") is not None


def engine() -> str | None:
    """Return what reads pictures here, with its version, or None."""
    return f"rapidocr {_release()}, {VERSION}" if is_installed() else None


@functools.cache
def _release() -> str:
    return version("rapidocr")


def usable(options: Options) -> bool:
    """Tell whether a page that needs it is to be recognised; raise when it must and cannot be."""
    if options.ocr == "never":
        return False
    if not is_installed() and options.ocr == "always":
        raise Permanent("ocr=always: RapidOCR is not installed. Run: pip install 'quire[ocr]'.")
    return is_installed()


def recognise(
    pixels: "Pixels",
    width: float,
    height: float,
    known_image: Callable[[str], bool] | None = None,
) -> Recognised:
    """Read a picture (BGR) of a page of width × height points, unless its text is known."""
    digest = blake2b(repr(pixels.shape).encode(), digest_size=16)
    digest.update(pixels.tobytes())
    key = digest.hexdigest()
    if known_image is not None and known_image(key):
        return Recognised("", b"", key)
    turns = _turns(pixels)
    lines = _lines(_turned(pixels, turns))
    text = "\n".join(line.text for line in lines)
    if not text:
        return Recognised("", b"", key)
    boxes = _turned_back(_word_boxes(lines), turns, pixels.shape)
    boxes *= [width / pixels.shape[1], height / pixels.shape[0]] * 2
    return Recognised(text, word_boxes.pack(boxes), key)


@functools.cache
def reader() -> Any:
    """Return RapidOCR's own reader, on one thread."""
    # Before it is loaded: it would report its use to its maker, and write to the user's home.
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


def _turned(pixels: "Pixels", turns: int) -> "Pixels":
    """Return a picture turned by quarters, against the clock."""
    import numpy as np

    return np.ascontiguousarray(np.rot90(pixels, turns)) if turns else pixels


def _turns(pixels: "Pixels") -> int:
    """Return how many quarters against the clock make the lines of a picture upright."""
    step = max(1, round(max(pixels.shape[:2]) / _SMALL))
    small = pixels[::step, ::step]
    found = _detected(small)
    if not len(found):
        return 0
    wide, tall = (found[:, 2] - found[:, 0]), (found[:, 3] - found[:, 1])
    standing = tall[tall > 1.5 * wide].sum() > wide[wide > 1.5 * tall].sum()
    turns = int(standing)
    if standing:
        found = _turned_boxes(found, small.shape)
    return turns + 2 * _is_upside_down(_turned(pixels, turns), found * step)


def _detected(pixels: "Pixels") -> "Boxes":
    """Return left, top, right, bottom of each line found."""
    import numpy as np

    found = reader()(np.ascontiguousarray(pixels), use_det=True, use_cls=False, use_rec=False)
    if found.boxes is None:
        return np.zeros((0, 4))
    quads = np.asarray(found.boxes, np.float64)
    return np.concatenate([quads.min(1), quads.max(1)], axis=1)


def _turned_boxes(boxes: "Boxes", shape: tuple[int, ...]) -> "Boxes":
    """Return left, top, right, bottom in a picture turned by a quarter against the clock."""
    import numpy as np

    left, top, right, bottom = boxes.T
    return np.stack([top, shape[1] - right, bottom, shape[1] - left], axis=1)


def _is_upside_down(pixels: "Pixels", boxes: "Boxes") -> bool:
    """Ask the widest lines; where they say so, compare how well they read both ways."""
    import numpy as np

    widest = np.argsort(boxes[:, 0] - boxes[:, 2])[:_ASKED]
    crops = []
    for left, top, right, bottom in boxes[widest].astype(int).clip(0).tolist():
        # The model sees a line at four times its height; a whole line would be squeezed.
        near = min(right, left + 5 * (bottom - top))
        crop = pixels[top : bottom + 1, left : near + 1]
        if min(crop.shape[:2]) >= 4:
            crops.append(np.ascontiguousarray(crop))
    votes = [_vote(crop) for crop in crops]
    if sum(votes) <= 0:
        return False
    asked = crops[:3]
    return sum(_score(_turned(c, 2)) for c in asked) > sum(_score(c) for c in asked)


def _vote(line: "Pixels") -> float:
    found = reader()(line, use_det=False, use_cls=True, use_rec=False).cls_res
    label, score = found[0]
    return float(score) if label == "180" else -float(score)


def _score(line: "Pixels") -> float:
    found = reader()(line, use_det=False, use_cls=False, use_rec=True)
    return float(found.scores[0]) if found.scores else 0.0


def _lines(pixels: "Pixels") -> list[_Line]:
    import numpy as np

    found = reader()(pixels, use_det=True, use_cls=False, use_rec=True)
    if found.boxes is None or not len(found.boxes):
        return []
    quads = np.asarray(found.boxes, np.float64)
    corners = np.concatenate([quads.min(1), quads.max(1)], axis=1).tolist()
    lines = [
        _Line(" ".join(text.replace("\0", " ").split()), tuple(box))
        for text, box in zip(found.txts, corners, strict=True)
    ]
    lines = [line for line in lines if line.text]
    order = in_reading_order([line.box for line in lines], pixels.shape[1])
    return [lines[index] for index in order]


def _word_boxes(lines: list[_Line]) -> "Boxes":
    """Return x, y, width, height of each word: its share of the line, by its letters."""
    import numpy as np

    rows = []
    for text, (left, top, right, bottom) in lines:
        letter = (right - left) / len(text)
        for start, stop in word_boxes.spans(text):
            rows.append((left + start * letter, top, (stop - start) * letter, bottom - top))
    return np.array(rows, np.float64).reshape(-1, 4)


def _turned_back(boxes: "Boxes", turns: int, shape: tuple[int, ...]) -> "Boxes":
    """Return boxes of the turned picture in the picture as it came."""
    import numpy as np

    x, y, width, height = boxes.T
    rows, columns = shape[:2]
    back = {
        0: (x, y, width, height),
        1: (columns - y - height, x, height, width),
        2: (columns - x - width, rows - y - height, width, height),
        3: (y, rows - x - width, height, width),
    }[turns]
    return np.stack(back, axis=1)
