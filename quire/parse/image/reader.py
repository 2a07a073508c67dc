"""Pictures (PNG, JPEG, TIFF, …): their text is recognised; a TIFF has a page for each frame."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import ocr
from quire.parse.options import Options

if TYPE_CHECKING:
    from PIL.Image import Image

VERSION = 1
MOST_FRAMES = 100_000
MOST_PIXELS = 180_000_000  # Pillow's own limit, where it raises instead of warning
_RECOGNISED_PIXELS = 25_000_000
_DOTS_AN_INCH = 150.0


def look(path: Path, media_type: str) -> Outline:
    """Count the frames of a picture; an animation counts as its first frame."""
    with opened(path) as image:
        count = getattr(image, "n_frames", 1) if media_type == "image/tiff" else 1
    if count > MOST_FRAMES:
        raise Unreadable(f"{path.name}: has {count:,} frames (at most {MOST_FRAMES:,}).")
    return Outline(media_type, "page", count)


def read(
    path: Path,
    media_type: str,
    options: Options,
    first: int,
    last: int,
    *,
    known_image: Callable[[str], bool] | None = None,
) -> Iterator[Page | PageFailure]:
    """Yield the frames first…last."""
    for number in range(first, last + 1):
        try:
            with opened(path) as image:
                if number > 1:
                    image.seek(number - 1)
                yield _recognised(image, number, options, known_image)
        except Unreadable as error:
            yield PageFailure(number, str(error))


@contextlib.contextmanager
def opened(path: Path) -> Iterator["Image"]:
    """Open a picture; what Pillow raises, also while it is used, becomes Unreadable."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise Unreadable(_too_large(path, width, height))
                yield image
    except Image.DecompressionBombError as error:
        raise Unreadable(f"{path.name}: {error}") from error
    except UnidentifiedImageError as error:
        raise Unreadable(f"{path.name}: is damaged and cannot be opened as a picture.") from error
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError) as error:
        raise Unreadable(f"{path.name}: is damaged or cut off ({error}).") from error


def _too_large(path: Path, width: int, height: int) -> str:
    return (
        f"{path.name}: has {width:,} by {height:,} pixels (at most {MOST_PIXELS:,} in all). "
        "Make it smaller and ingest it again."
    )


def _recognised(
    image: "Image", number: int, options: Options, known_image: Callable[[str], bool] | None
) -> Page:
    import numpy as np
    from PIL import ImageOps

    dots = _resolution(image)
    width, height = (round(side * 72 / dots, 2) for side in image.size)
    if not ocr.usable(options):
        return Page(number, "", width=width, height=height, via="none")
    shrink = (_RECOGNISED_PIXELS / (image.width * image.height)) ** 0.5
    if shrink < 1:
        image.draft("RGB", (int(image.width * shrink), int(image.height * shrink)))
    frame = ImageOps.exif_transpose(opaque(image))
    if frame.width * frame.height > _RECOGNISED_PIXELS:
        frame = frame.reduce(int((frame.width * frame.height / _RECOGNISED_PIXELS) ** 0.5) + 1)
    if (frame.width > frame.height) != (width > height):
        width, height = height, width
    pixels = np.asarray(frame)[:, :, ::-1]
    found = ocr.recognise(np.ascontiguousarray(pixels), width, height, known_image)
    return Page(number, *found[:2], width, height, "ocr", image_key=found.image_key)


def opaque(image: "Image") -> "Image":
    """Return a picture on white: what is transparent is often black under it."""
    from PIL import Image

    if not image.has_transparency_data:
        return image.convert("RGB")
    seen = image.convert("RGBA")
    paper = Image.new("RGBA", seen.size, "white")
    return Image.alpha_composite(paper, seen).convert("RGB")


def _resolution(image: "Image") -> float:
    try:
        found = float(image.info["dpi"][0])
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError):
        return _DOTS_AN_INCH
    return found if 50 <= found <= 2400 else _DOTS_AN_INCH
