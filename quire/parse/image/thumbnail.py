"""A small picture of the first page, for lists of documents."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from quire.errors import Unreadable
from quire.parse import file_type
from quire.parse.image import reader as images
from quire.parse.pdf import reader as pdf

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 300
_QUALITY = 80


def thumbnail(path: Path, media_type: str) -> bytes | None:
    """Return a JPEG of page 1 of at most 300 pixels a side; None where a type has no picture."""
    try:
        if media_type == file_type.PDF:
            return _jpeg(_first_page(path))
        if media_type.startswith("image/"):
            with images.opened(path) as image:
                image.draft("RGB", (SIDE * 2, SIDE * 2))
                return _jpeg(images.opaque(image))
    except (Unreadable, MemoryError):
        return None
    return None


def _first_page(path: Path) -> "Image":
    import pypdfium2
    from PIL import Image

    try:
        page = pdf.opened(path)[0]
        try:
            pixels = pdf.render(page, SIDE / max(*page.get_size(), 1.0), SIDE * SIDE)
        finally:
            page.close()
    except pypdfium2.PdfiumError as error:
        raise Unreadable(f"{path.name}: page 1 cannot be drawn ({error}).") from error
    return Image.fromarray(pixels[:, :, ::-1])


def _jpeg(image: "Image") -> bytes:
    image.thumbnail((SIDE, SIDE))
    written = io.BytesIO()
    image.save(written, "JPEG", quality=_QUALITY)
    return written.getvalue()
