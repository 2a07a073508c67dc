"""Images (PNG, JPEG, TIFF, …): their text comes from OCR. A TIFF has one page per frame."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import ocr
from quire.parse.parser import ReadOptions, ReadRequest

if TYPE_CHECKING:
    from PIL.Image import Image

#: Pillow finds a frame by a walk over all before it, and looks for loops at each: it is quadratic.
MAX_FRAMES = 5_000
MAX_PIXELS = 178_000_000  # just below where Pillow raises an error of its own
_MAX_OCR_PIXELS = 25_000_000
_DEFAULT_DPI = 150.0


class ImageParser(ocr.OcrParser):
    """Image files, by Pillow and OCR."""

    name = "images"
    version = 2
    library = "pillow"

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Count the frames of a TIFF; of an animation only the first frame is read."""
        with open_image(path) as image:
            count = _count_frames(image) if media_type == "image/tiff" else 1
        if count > MAX_FRAMES:
            raise Unreadable(
                f"{path.name}: has more than {MAX_FRAMES:,} frames. Split it and ingest the parts."
            )
        return Outline(media_type, "page", count)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the requested frames."""
        for number in range(request.first, request.last + 1):
            try:
                with open_image(request.path) as image:
                    if number > 1:
                        image.seek(number - 1)
                    yield _read_frame(image, number, request)
            except Unreadable as error:
                yield PageFailure(number, str(error))


def _count_frames(image: "Image") -> int:
    """Count frames up to one more than may be: the rest of a hostile file is not walked."""
    count = 1
    with contextlib.suppress(EOFError):
        while count <= MAX_FRAMES:
            image.seek(count)
            count += 1
    return count


@contextlib.contextmanager
def open_image(path: Path) -> Iterator["Image"]:
    """Open an image; errors of Pillow become Unreadable, also those raised while it is used."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                width, height = image.size
                if width * height > MAX_PIXELS:
                    raise Unreadable(
                        f"{path.name}: has {width:,} by {height:,} pixels (at most {MAX_PIXELS:,} "
                        "in all). Make it smaller and ingest it again."
                    )
                yield image
    except Image.DecompressionBombError as error:
        raise Unreadable(f"{path.name}: {error}") from error
    except UnidentifiedImageError as error:
        raise Unreadable(f"{path.name}: is damaged and cannot be opened as an image.") from error
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError) as error:
        raise Unreadable(f"{path.name}: is damaged or cut off ({error}).") from error


def flatten(image: "Image") -> "Image":
    """Return an image as RGB on a white background: transparent pixels are often stored black."""
    from PIL import Image

    if not image.has_transparency_data:
        return image.convert("RGB")
    rgba = image.convert("RGBA")
    background = Image.new("RGBA", rgba.size, "white")
    return Image.alpha_composite(background, rgba).convert("RGB")


def _read_frame(image: "Image", number: int, request: ReadRequest) -> Page:
    import numpy as np
    from PIL import ImageOps

    dpi = _resolution(image)
    width, height = (round(side * 72 / dpi, 2) for side in image.size)
    if not ocr.is_enabled(request.options.ocr):
        return Page(number, "", width=width, height=height, via="none")
    scale = (_MAX_OCR_PIXELS / (image.width * image.height)) ** 0.5
    if scale < 1:
        image.draft("RGB", (int(image.width * scale), int(image.height * scale)))
    frame = ImageOps.exif_transpose(flatten(image))
    if frame.width * frame.height > _MAX_OCR_PIXELS:
        frame = frame.reduce(int((frame.width * frame.height / _MAX_OCR_PIXELS) ** 0.5) + 1)
    if (frame.width > frame.height) != (width > height):
        width, height = height, width
    pixels = np.ascontiguousarray(np.asarray(frame)[:, :, ::-1])
    return ocr.read_page(number, pixels, width, height, request.known_image)


def _resolution(image: "Image") -> float:
    try:
        dpi = float(image.info["dpi"][0])
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError):
        return _DEFAULT_DPI
    return dpi if 50 <= dpi <= 2400 else _DEFAULT_DPI
