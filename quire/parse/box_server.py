"""Reads files inside a box: the requests of `boxed_reader`, answered with the parsers.

It runs confined (`quire.sandbox`): it has the one file, the installation, and a pipe to its owner.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from quire.model.pages import Page, PageFailure
from quire.parse import file_type, formats
from quire.parse.parser import ReadOptions
from quire.sandbox.messages import Message

Ask = Callable[[dict[str, Any]], dict[str, Any]]
#: Loaded once, before any file is read; what else is needed is loaded by the box that needs it.
_PRELOADED = ("numpy", "PIL.Image", "pypdfium2", "pikepdf", "quire.parse.render")
#: A page of ours with a font that is not embedded. PDFium needs no table of its objects.
_SAMPLE = b"""%PDF-1.4
1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj
2 0 obj <</Type /Pages /Kids [3 0 R] /Count 1>> endobj
3 0 obj <</Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 4 0 R
/Resources <</Font <</F <</Type /Font /Subtype /Type1 /BaseFont /Helvetica>>>>>>>> endobj
4 0 obj <</Length 39>> stream
BT /F 9 Tf 9 9 Td (Some words) Tj ET   
endstream endobj
trailer <</Root 1 0 R>>"""


def preload() -> None:
    """Load the parsers, and what they load or compute when they read their first page."""
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            import_module(name)
    with contextlib.suppress(ImportError, OSError), TemporaryDirectory() as folder:
        _read_sample(Path(folder, "sample.pdf"))


def _read_sample(path: Path) -> None:
    """Fill the caches: formats of images, fonts of the system, tables of characters."""
    from quire.parse.pdf import reader
    from quire.parse.render import thumbnail

    path.write_bytes(_SAMPLE)
    formats.inspect(path, file_type.PDF)
    deque(formats.read(path, file_type.PDF, ReadOptions(ocr="never"), 1, 1), maxlen=0)
    thumbnail(path, file_type.PDF)
    reader.close()


def handle(request: dict[str, Any], folder: Path, ask: Ask) -> Iterator[Message]:
    """Answer one request about the file in the folder."""
    path = folder / request["file"]
    yield from _ACTIONS[request["do"]](request, path, ask)


def _detect(request: dict[str, Any], path: Path, ask: Ask) -> Iterator[Message]:
    yield Message({"type": file_type.detect_content(path, request["name"])})


def _inspect(request: dict[str, Any], path: Path, ask: Ask) -> Iterator[Message]:
    found = formats.inspect(path, request["media_type"], _options(request))
    head = {"unit": found.unit, "length": found.length, "scans": found.scans}
    yield Message({**head, "keyed": found.keys is not None}, "\n".join(found.keys or ()).encode())


def _read(request: dict[str, Any], path: Path, ask: Ask) -> Iterator[Message]:
    def is_known(image_key: str) -> bool:
        return bool(ask({"image": image_key})["known"])

    pages = formats.read(
        path, request["media_type"], _options(request), request["first"], request["last"],
        known_image=is_known if request["asks"] else None,
    )  # fmt: skip
    for page in pages:
        yield _failure(page) if isinstance(page, PageFailure) else _page(page)


def _page(page: Page) -> Message:
    text = page.text.encode("utf-8", "surrogatepass")
    described = [page.number, page.width, page.height, page.via, page.label, page.image_key]
    sizes = [len(text), len(page.words)]
    return Message({"page": described, "sizes": sizes}, text + page.words + page.blocks)


def _failure(page: PageFailure) -> Message:
    return Message({"failed": [page.number, page.error]})


def _thumbnail(request: dict[str, Any], path: Path, ask: Ask) -> Iterator[Message]:
    from quire.parse.render import thumbnail

    if image := thumbnail(path, request["media_type"]):
        yield Message({}, image)


def _draw(request: dict[str, Any], path: Path, ask: Ask) -> Iterator[Message]:
    from quire.parse.render import page_png

    yield Message({}, page_png(path, request["media_type"], request["page"], request["width"]))


def _pixels(request: dict[str, Any], path: Path, ask: Ask) -> Iterator[Message]:
    from quire.parse.render import page_pixels

    width, height, pixels = page_pixels(
        path, request["media_type"], request["page"], request["width"]
    )
    yield Message({"size": [width, height]}, pixels)


def _attachments(request: dict[str, Any], path: Path, ask: Ask) -> Iterator[Message]:
    for each in formats.attachments(path, request["media_type"]):
        yield Message({"name": each.name}, each.content)


def _options(request: dict[str, Any]) -> ReadOptions:
    parser, ocr, languages, row_size = request["options"]
    return ReadOptions(parser, ocr, tuple(languages), row_size)


_ACTIONS: dict[str, Callable[[dict[str, Any], Path, Ask], Iterator[Message]]] = {
    "detect": _detect,
    "inspect": _inspect,
    "read": _read,
    "thumbnail": _thumbnail,
    "draw": _draw,
    "pixels": _pixels,
    "attachments": _attachments,
}
