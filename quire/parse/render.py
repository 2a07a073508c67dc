"""Renders pages for people: one page as PNG, and the thumbnail of a document as JPEG."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from quire.errors import Unreadable
from quire.parse import file_type
from quire.parse.image import flatten, open_image
from quire.parse.pdf import reader as pdf

if TYPE_CHECKING:
    from PIL.Image import Image

#: Of a rendered page.
MAX_PIXELS = 8_000_000
#: Of an image that is shown as a page; the text of a larger one is read all the same.
MAX_IMAGE_PIXELS = 40_000_000
#: Longer side of a thumbnail, in pixels.
THUMBNAIL_SIDE = 300
_JPEG_QUALITY = 80
_REDUCIBLE = ("L", "LA", "RGB", "RGBA", "CMYK")


def can_render(media_type: str | None) -> bool:
    """Return whether pages of this media type can be rendered."""
    return media_type is not None and (
        media_type == file_type.PDF or media_type.startswith("image/")
    )


def page_png(path: Path, media_type: str, number: int, width: int) -> bytes:
    """Return a page as PNG, `width` pixels wide or less to stay below MAX_PIXELS."""
    buffer = io.BytesIO()
    _picture(path, media_type, number, width).save(buffer, "PNG", compress_level=4)
    return buffer.getvalue()


def page_pixels(path: Path, media_type: str, number: int, width: int) -> tuple[int, int, bytes]:
    """Return a page as width, height and pixels, each of blue, green and red."""
    found = _picture(path, media_type, number, width)
    return found.width, found.height, found.tobytes("raw", "BGR")


def _picture(path: Path, media_type: str, number: int, width: int) -> "Image":
    if media_type == file_type.PDF:
        return _pdf_page(path, number, lambda wide, high: width / max(wide, 1.0), MAX_PIXELS)
    return _image_frame(path, number, width)


def thumbnail(path: Path, media_type: str) -> bytes | None:
    """Return page 1 as a JPEG of at most 300 by 300 pixels, or None if it cannot be rendered."""
    try:
        if media_type == file_type.PDF:
            return _jpeg(
                _pdf_page(
                    path, 1, lambda *size: THUMBNAIL_SIDE / max(*size, 1.0), THUMBNAIL_SIDE**2
                )
            )
        if media_type.startswith("image/"):
            with open_image(path) as image:
                return _jpeg(_shrunk(image, THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    except (Unreadable, MemoryError):
        return None
    return None


def _pdf_page(
    path: Path, number: int, scale: Callable[[float, float], float], max_pixels: int
) -> "Image":
    """Render a page; `scale` returns pixels per point for its width and height."""
    import pypdfium2
    from PIL import Image

    try:
        document = pdf.open_document(path)
        if number > len(document):
            raise Unreadable(f"page {number}: the file has {len(document):,} pages.")
        page = pdf.take_page(document, number)
        pdf.keep_page(document, number, page)
        pixels = pdf.render(page, scale(*page.get_size()), max_pixels)
    except pypdfium2.PdfiumError as error:
        raise Unreadable(f"page {number}: cannot be rendered ({error}).") from error
    return Image.fromarray(pixels[:, :, ::-1])


def _image_frame(path: Path, number: int, width: int) -> "Image":
    from PIL import ImageOps

    with open_image(path) as image:
        if number > 1:
            image.seek(number - 1)
        image.draft("RGB", (width, width))
        if image.width * image.height > MAX_IMAGE_PIXELS:
            raise Unreadable(
                f"page {number}: cannot be rendered (it has {image.width:,} by {image.height:,} "
                f"pixels, at most {MAX_IMAGE_PIXELS:,} in all). Its text is not affected."
            )
        frame = ImageOps.exif_transpose(_shrunk(image, width, width))
        scale = min(width / frame.width, (MAX_PIXELS / (frame.width * frame.height)) ** 0.5, 1.0)
        size = max(round(frame.width * scale), 1), max(round(frame.height * scale), 1)
        return frame if size == frame.size else frame.resize(size)


def _shrunk(image: "Image", width: int, height: int) -> "Image":
    """Return an image as RGB, reduced first if it is far larger than it will be shown."""
    image.draft("RGB", (width * 2, height * 2))
    factor = max(min(image.width // (2 * width), image.height // (2 * height)), 1)
    if factor == 1:
        return flatten(image)
    if image.mode not in _REDUCIBLE or "transparency" in image.info:
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    return flatten(image.reduce(factor))


def _jpeg(image: "Image") -> bytes:
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_JPEG_QUALITY)
    return buffer.getvalue()
