"""Which module, or which plugin, reads which type of file: where all formats meet."""

import functools
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from quire.errors import Unreadable
from quire.model.contracts import ParserKind
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import file_type, mail, ocr, plugin_parser
from quire.parse.image import reader as images
from quire.parse.markup import markup
from quire.parse.office import docx, pptx
from quire.parse.options import Options
from quire.parse.pdf import reader as pdf
from quire.parse.tables import reader as tables

_DEFAULT = Options()


class _Format(NamedTuple):
    module: ModuleType  # has VERSION, look and read
    name: str  # what people call the type
    library: str | None = None
    has_pictures: bool = False


FORMATS: dict[str, _Format] = {
    file_type.PDF: _Format(pdf, "PDF", "pypdfium2", has_pictures=True),
    file_type.DOCX: _Format(docx, "DOCX"),
    file_type.PPTX: _Format(pptx, "PPTX"),
    file_type.XLSX: _Format(tables, "XLSX", "python-calamine"),
    "text/csv": _Format(tables, "CSV"),
    "text/html": _Format(markup, "HTML"),
    "text/markdown": _Format(markup, "Markdown"),
    "text/plain": _Format(markup, "plain text"),
    "message/rfc822": _Format(mail, "EML"),
    **{
        f"image/{kind}": _Format(images, kind.upper(), "pillow", has_pictures=True)
        for kind in ("png", "jpeg", "tiff", "webp", "gif", "bmp")
    },
}


def look(path: Path, media_type: str, options: Options = _DEFAULT) -> Outline:
    """Open a file and count its pages or rows, or raise Unreadable with a plain reason."""
    if not path.stat().st_size:
        raise Unreadable(f"{path.name}: is empty (0 bytes).")
    if _plugin(media_type, options):
        return Outline(media_type, "whole", 1)
    found: Outline = _format(path, media_type).module.look(path, media_type)
    return found


def read(
    path: Path,
    media_type: str,
    options: Options,
    first: int,
    last: int,
    *,
    known_image: Callable[[str], bool] | None = None,
) -> Iterator[Page | PageFailure]:
    """Yield the pages first…last of a file (rows of a table), in order and one at a time."""
    if kind := _plugin(media_type, options):
        yield from plugin_parser.read(kind, path)
        return
    module = _format(path, media_type).module
    yield from module.read(path, media_type, options, first, last, known_image=known_image)


def recipe(media_type: str, options: Options) -> dict[str, Any]:
    """Return all that decides the text of a page besides the page itself."""
    if kind := _plugin(media_type, options):
        return {"media_type": media_type, "plugin": kind.name, "version": kind.version}
    form = FORMATS.get(media_type)
    if form is None:
        return {"media_type": media_type, "parser": options.parser}
    found: dict[str, Any] = {
        "media_type": media_type,
        "parser": form.module.__name__.rpartition(".")[2],
        "version": form.module.VERSION,
        "library": installed(form.library) if form.library else None,
    }
    if form.has_pictures:
        found["ocr"] = options.ocr
        found["engine"] = None if options.ocr == "never" else ocr.engine()
    if form.module is tables:
        found["row_size"] = options.row_size
    return found


@functools.cache
def installed(library: str) -> str | None:
    """Return the version of a library, or None where it is not installed."""
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _plugin(media_type: str, options: Options) -> ParserKind | None:
    return plugin_parser.chosen(options.parser, media_type, is_built_in=media_type in FORMATS)


def _format(path: Path, media_type: str) -> _Format:
    if media_type == "application/x-ole-encrypted":
        raise Unreadable(
            f"{path.name}: is protected by a password. Remove the protection and ingest it again."
        )
    form = FORMATS.get(media_type)
    if form is None:
        known = [*dict.fromkeys(form.name for form in FORMATS.values()), *plugin_parser.names()]
        raise Unreadable(
            f"{path.name}: type {media_type} is not supported; supported: {', '.join(known)}."
        )
    return form
