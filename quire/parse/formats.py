"""All supported formats: the parser of each media type, built in or from a plugin."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quire.errors import Unreadable
from quire.model.pages import Attachment, Outline, Page, PageFailure
from quire.parse import file_type, mail, msg, plugin_layout, plugin_parser
from quire.parse.epub import EpubParser
from quire.parse.image import ImageParser
from quire.parse.markup import MarkupParser
from quire.parse.office.docx import DocxParser
from quire.parse.office.odt import OdtParser
from quire.parse.office.pptx import PptxParser
from quire.parse.parser import Parser, ReadOptions, ReadRequest
from quire.parse.pdf.reader import PdfParser
from quire.parse.rtf import RtfParser
from quire.parse.tables.reader import TableParser

#: Types of files that hold others.
MESSAGES = ("message/rfc822", file_type.MSG)


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
    file_type.XLS: Format("XLS", _TABLES),
    file_type.ODS: Format("ODS", _TABLES),
    file_type.ODT: Format("ODT", OdtParser()),
    file_type.RTF: Format("RTF", RtfParser()),
    file_type.EPUB: Format("EPUB", EpubParser()),
    "text/csv": Format("CSV", _TABLES),
    "text/html": Format("HTML", _MARKUP),
    "text/markdown": Format("Markdown", _MARKUP),
    "text/plain": Format("plain text", _MARKUP),
    "message/rfc822": Format("EML", mail.MailParser()),
    file_type.MSG: Format("MSG", msg.MsgParser()),
    **{
        f"image/{kind}": Format(kind.upper(), _IMAGES)
        for kind in ("png", "jpeg", "tiff", "webp", "gif", "bmp")
    },
}

#: Types that plugins read before Quire did: a plugin that names one still reads it.
_YIELDING = frozenset(
    (file_type.EPUB, file_type.ODT, file_type.ODS, file_type.RTF, file_type.MSG, file_type.XLS)
)

#: Old formats that no library reads that we could use, and the format to save them as.
_OLD = {file_type.DOC: "Word", file_type.PPT: "PowerPoint"}
_NEW = {file_type.DOC: "DOCX", file_type.PPT: "PPTX"}


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


def attachments(path: Path, media_type: str) -> Sequence[Attachment]:
    """Return the files inside a message."""
    read = msg.attachments if media_type == file_type.MSG else mail.attachments
    return read(path)


def is_builtin(media_type: str, options: ReadOptions) -> bool:
    """Tell whether no plugin reads a media type."""
    is_known = media_type in FORMATS and media_type not in _YIELDING
    return plugin_parser.choose(options.parser, media_type, is_builtin=is_known) is None


def recipe(media_type: str, options: ReadOptions) -> dict[str, Any]:
    """Return everything besides the file that decides the text of its pages."""
    parser = _find_parser(media_type, options)
    if parser is None:
        return {"media_type": media_type, "parser": options.parser}
    found = parser.recipe(media_type, options)
    return found | plugin_layout.recipe(options.layout) if has_pictures(media_type) else found


def has_pictures(media_type: str) -> bool:
    """Tell whether pages of a type can be drawn, so that a plugin can look at their layout."""
    return media_type == file_type.PDF or media_type.startswith("image/")


def _find_parser(media_type: str, options: ReadOptions) -> Parser | None:
    builtin = FORMATS.get(media_type)
    is_known = builtin is not None and media_type not in _YIELDING
    kind = plugin_parser.choose(options.parser, media_type, is_builtin=is_known)
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
    if media_type in _OLD:
        raise Unreadable(
            f"{path.name}: is a file of an old {_OLD[media_type]}, which is not supported. "
            f"Save it as {_NEW[media_type]} and ingest that."
        )
    labels = [*dict.fromkeys(form.label for form in FORMATS.values()), *plugin_parser.labels()]
    raise Unreadable(
        f"{path.name}: type {media_type} is not supported; supported: {', '.join(labels)}."
    )
