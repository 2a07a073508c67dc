"""All supported formats: the parser of each media type, built in or from a plugin."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import file_type, plugin_parser
from quire.parse.image import ImageParser
from quire.parse.mail import MailParser
from quire.parse.markup import MarkupParser
from quire.parse.office.docx import DocxParser
from quire.parse.office.pptx import PptxParser
from quire.parse.parser import Parser, ReadOptions, ReadRequest
from quire.parse.pdf.reader import PdfParser
from quire.parse.tables.reader import TableParser


class Format(NamedTuple):
    """A supported media type."""

    label: str  # for people
    parser: Parser


_TABLES, _MARKUP, _IMAGES = TableParser(), MarkupParser(), ImageParser()

FORMATS: dict[str, Format] = {
    file_type.PDF: Format("PDF", PdfParser()),
    file_type.DOCX: Format("DOCX", DocxParser()),
    file_type.PPTX: Format("PPTX", PptxParser()),
    file_type.XLSX: Format("XLSX", _TABLES),
    "text/csv": Format("CSV", _TABLES),
    "text/html": Format("HTML", _MARKUP),
    "text/markdown": Format("Markdown", _MARKUP),
    "text/plain": Format("plain text", _MARKUP),
    "message/rfc822": Format("EML", MailParser()),
    **{
        f"image/{kind}": Format(kind.upper(), _IMAGES)
        for kind in ("png", "jpeg", "tiff", "webp", "gif", "bmp")
    },
}


def inspect(path: Path, media_type: str, options: ReadOptions | None = None) -> Outline:
    """Open a file and count its pages. Raises Unreadable."""
    if not path.stat().st_size:
        raise Unreadable(f"{path.name}: is empty (0 bytes).")
    options = options or ReadOptions()
    return _parser(path, media_type, options).inspect(path, media_type, options)


def read(
    path: Path,
    media_type: str,
    options: ReadOptions,
    first: int,
    last: int,
    *,
    known_image: Callable[[str], bool] | None = None,
) -> Iterator[Page | PageFailure]:
    """Return an iterator over the pages first…last of a file, in order."""
    parser = _parser(path, media_type, options)
    return parser.read(ReadRequest(path, media_type, options, first, last, known_image))


def is_builtin(media_type: str, options: ReadOptions) -> bool:
    """Tell whether no plugin reads a media type."""
    is_known = media_type in FORMATS
    return plugin_parser.choose(options.parser, media_type, is_builtin=is_known) is None


def recipe(media_type: str, options: ReadOptions) -> dict[str, Any]:
    """Return everything besides the file that decides the text of its pages."""
    parser = _find_parser(media_type, options)
    if parser is None:
        return {"media_type": media_type, "parser": options.parser}
    return parser.recipe(media_type, options)


def _find_parser(media_type: str, options: ReadOptions) -> Parser | None:
    builtin = FORMATS.get(media_type)
    kind = plugin_parser.choose(options.parser, media_type, is_builtin=builtin is not None)
    if kind is not None:
        return plugin_parser.PluginParser(kind)
    return builtin.parser if builtin else None


def _parser(path: Path, media_type: str, options: ReadOptions) -> Parser:
    found = _find_parser(media_type, options)
    if found is not None:
        return found
    if media_type == file_type.ENCRYPTED_OFFICE:
        raise Unreadable(
            f"{path.name}: is protected by a password. Remove the protection and ingest it again."
        )
    labels = [*dict.fromkeys(form.label for form in FORMATS.values()), *plugin_parser.labels()]
    raise Unreadable(
        f"{path.name}: type {media_type} is not supported; supported: {', '.join(labels)}."
    )
