"""Draws a page as PNG, for people to look at.

Run as a module it draws for another process, which can end it: a page that kills or stalls its
reader then takes nobody with it. A request is a line of JSON; the answer is a line of JSON with
the size of what follows, or with an error.
"""

import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.errors import Unreadable
from quire.parse import file_type
from quire.parse.image import reader as images
from quire.parse.pdf import reader as pdf

if TYPE_CHECKING:
    from PIL.Image import Image

#: Pixels of a picture, and bytes of memory of the process that draws.
MOST_PIXELS = 8_000_000
MOST_BYTES = 4 << 30


def can_draw(media_type: str | None) -> bool:
    """Tell whether pages of this type can be drawn."""
    return media_type is not None and (
        media_type == file_type.PDF or media_type.startswith("image/")
    )


def draw(path: Path, media_type: str, number: int, width: int) -> bytes:
    """Return a page as PNG of this many pixels across, or fewer where it would be too large."""
    picture = (
        _pdf(path, number, width) if media_type == file_type.PDF else _frame(path, number, width)
    )
    written = io.BytesIO()
    picture.save(written, "PNG", compress_level=4)
    return written.getvalue()


def _pdf(path: Path, number: int, width: int) -> "Image":
    import pypdfium2
    from PIL import Image

    try:
        document = pdf.opened(path)
        if number > len(document):
            raise Unreadable(f"page {number}: the file has {len(document):,} pages.")
        page = document[number - 1]
        try:
            pixels = pdf.render(page, width / max(page.get_size()[0], 1.0), MOST_PIXELS)
        finally:
            page.close()
    except pypdfium2.PdfiumError as error:
        raise Unreadable(f"page {number}: cannot be drawn ({error}).") from error
    return Image.fromarray(pixels[:, :, ::-1])


def _frame(path: Path, number: int, width: int) -> "Image":
    from PIL import ImageOps

    with images.opened(path) as image:
        if number > 1:
            image.seek(number - 1)
        image.draft("RGB", (width, width))
        frame = ImageOps.exif_transpose(images.opaque(image))
        scale = min(width / frame.width, (MOST_PIXELS / (frame.width * frame.height)) ** 0.5, 1.0)
        size = max(round(frame.width * scale), 1), max(round(frame.height * scale), 1)
        return frame if size == frame.size else frame.resize(size)


def serve() -> None:
    """Draw what the process at the other end of standard input asks for, until it ends."""
    _bound_memory()
    for line in sys.stdin.buffer:
        head, body = _answer(json.loads(line))
        sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + body)
        sys.stdout.buffer.flush()


def _answer(asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    try:
        body = draw(Path(asked["path"]), asked["media_type"], asked["page"], asked["width"])
    except Unreadable as error:
        return {"error": str(error)}, b""
    except Exception as error:
        return {"error": f"page {asked['page']}: cannot be drawn ({error})."}, b""
    return {"size": len(body)}, body


def _bound_memory() -> None:
    import contextlib
    import resource

    # Not every system knows this limit; the time limit of the asker holds everywhere.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


if __name__ == "__main__":
    serve()
