"""Renders pages for people: one page as PNG, and the thumbnail of a document as JPEG.

`python -m quire.parse.render` renders for another process, which can kill it: a page that crashes
or hangs the renderer then harms nothing else. A request is a line of JSON; the response is a line
of JSON with the size of the PNG that follows, or with an error.
"""

import contextlib
import io
import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.errors import Unreadable
from quire.parse import file_type
from quire.parse.image import flatten, open_image
from quire.parse.pdf import reader as pdf

if TYPE_CHECKING:
    from PIL.Image import Image

#: Of a rendered page.
MAX_PIXELS = 8_000_000
#: Address space of the rendering process.
MAX_MEMORY_BYTES = 4 << 30
#: Longer side of a thumbnail, in pixels.
THUMBNAIL_SIDE = 300
_JPEG_QUALITY = 80


def can_render(media_type: str | None) -> bool:
    """Return whether pages of this media type can be rendered."""
    return media_type is not None and (
        media_type == file_type.PDF or media_type.startswith("image/")
    )


def page_png(path: Path, media_type: str, number: int, width: int) -> bytes:
    """Return a page as PNG, `width` pixels wide or less to stay below MAX_PIXELS."""
    if media_type == file_type.PDF:
        picture = _pdf_page(path, number, lambda wide, high: width / max(wide, 1.0), MAX_PIXELS)
    else:
        picture = _image_frame(path, number, width)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", compress_level=4)
    return buffer.getvalue()


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
                image.draft("RGB", (THUMBNAIL_SIDE * 2, THUMBNAIL_SIDE * 2))
                return _jpeg(flatten(image))
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
        frame = ImageOps.exif_transpose(flatten(image))
        scale = min(width / frame.width, (MAX_PIXELS / (frame.width * frame.height)) ** 0.5, 1.0)
        size = max(round(frame.width * scale), 1), max(round(frame.height * scale), 1)
        return frame if size == frame.size else frame.resize(size)


def _jpeg(image: "Image") -> bytes:
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_JPEG_QUALITY)
    return buffer.getvalue()


def serve() -> None:
    """Answer the requests on standard input until it is closed."""
    # Not every system supports this limit; the caller's timeout applies everywhere.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    for line in sys.stdin.buffer:
        request, body = json.loads(line), b""
        path, number = Path(request["path"]), request["page"]
        head: dict[str, Any]
        try:
            body = page_png(path, request["media_type"], number, request["width"])
            head = {"size": len(body)}
        except Unreadable as error:
            head = {"error": str(error)}
        except Exception as error:
            head = {"error": f"page {number}: cannot be rendered ({error})."}
        sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + body)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve()
