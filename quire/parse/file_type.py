"""Detects the media type of a file by its content.

The file name decides only between kinds of plain text, and where the content is ambiguous (an
archive, or unknown) and a plugin has declared the suffix.
"""

import re
import zipfile
import zlib
from pathlib import Path

from quire.parse import plugin_parser

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
DOC = "application/msword"
XLS = "application/vnd.ms-excel"
PPT = "application/vnd.ms-powerpoint"
MSG = "application/vnd.ms-outlook"
RTF = "application/rtf"
ODT = "application/vnd.oasis.opendocument.text"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
EPUB = "application/epub+zip"
ENCRYPTED_OFFICE = "application/x-ole-encrypted"
UNKNOWN = "application/octet-stream"

_HEAD_BYTES = 8192
_OFFICE = {"word/": DOCX, "xl/": XLSX, "ppt/": PPTX}
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"II+\0", "image/tiff"),
    (b"MM\0+", "image/tiff"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"\x1f\x8b", "application/gzip"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"{\\rtf", RTF),
    (b"%!PS", "application/postscript"),
)
_BITMAP = re.compile(rb"BM.{4}\0\0\0\0.{3}\0[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0", re.DOTALL)
_HTML_TAG = re.compile(rb"<(?:!doctype\s++html|html|head|body)[\s>]", re.IGNORECASE)
_HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9-]*+:[^\r\n]*+\r?\n(?:[ \t][^\r\n]*+\r?\n)*+")
_MAIL_HEADERS = frozenset(
    b"from to cc subject date message-id received return-path mime-version content-type"
    b" delivered-to reply-to sender".split()
)
_TEXT_SUFFIXES = {
    ".csv": "text/csv",
    ".tsv": "text/csv",
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".htm": "text/html",
    ".html": "text/html",
    ".xhtml": "text/html",
}
#: Types for which a suffix declared by a plugin takes precedence.
_AMBIGUOUS = frozenset(
    {UNKNOWN, "text/plain", "application/zip", "application/gzip", "application/x-ole-storage"}
)
_MEMBER_NAME = re.compile(rb"PK\x03\x04.{26}([\x20-\x7e]++)")
#: EPUB and OpenDocument archives start with a stored member `mimetype`.
_MIMETYPE_MEMBER = re.compile(
    rb"PK\x03\x04.{4}\0\0.{16}\x08\0\0\0mimetype(application/(?:epub\+zip|vnd\.oasis\.[a-z.-]+))",
    re.DOTALL,
)
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


def detect(path: Path, name: str = "") -> str:
    """Return the media type of a file; `name` is its original name if `path` is a blob."""
    name = name or path.name
    return refine(detect_content(path, name), name, path)


def detect_content(path: Path, name: str) -> str:
    """Return the media type by the content of a file; the suffix tells kinds of text apart."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return _detect_binary(path, head) or _detect_text(head, Path(name).suffix.lower())


def refine(found: str, name: str, path: Path) -> str:
    """Return the media type that a plugin declares for the suffix, if the content is ambiguous."""
    if found in _AMBIGUOUS and path.stat().st_size:
        return plugin_parser.type_by_suffix(name) or found
    return found


def _detect_binary(path: Path, head: bytes) -> str | None:
    for magic, found in _MAGIC:
        if head.startswith(magic):
            return found
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if _BITMAP.match(head):
        return "image/bmp"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _detect_zip(path, head)
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return _detect_compound(path, head)
    if b"%PDF-" in head[:1032]:  # up to 1024 bytes may precede the header
        return PDF
    return None


#: Streams of compound files, and what a file with them is.
_STREAMS = {
    "EncryptedPackage": ENCRYPTED_OFFICE,
    "__properties_version1.0": MSG,
    "WordDocument": DOC,
    "PowerPoint Document": PPT,
    "Workbook": XLS,
    "Book": XLS,
}


def _detect_compound(path: Path, head: bytes) -> str:
    """Tell by the names of its streams what a compound file of old Office programs is."""
    sector = 4096 if head[30:32] == b"\x0c\0" else 512
    first = int.from_bytes(head[48:52], "little")
    with path.open("rb") as file:
        names = file.read(1 << 20)
        file.seek(min((first + 1) * sector, path.stat().st_size))
        names += file.read(1 << 16)  # the directory
    for name, found in _STREAMS.items():
        # The name of a stream ends with a zero.
        if f"{name}\0".encode("utf-16-le") in names:
            return found
    return "application/x-ole-storage"


def _detect_zip(path: Path, head: bytes) -> str:
    if declared := _MIMETYPE_MEMBER.match(head):
        return declared[1].decode()
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if told := _declared(archive):
                return told
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        # Truncated: the directory at the end is gone, but each member's header has its name.
        with path.open("rb") as file:
            start = file.read(1 << 20)
        names = [name.decode("latin-1") for name in _MEMBER_NAME.findall(start)]
    if "[Content_Types].xml" in names or any(name.startswith("_rels/") for name in names):
        for folder, found in _OFFICE.items():
            if any(name.startswith(folder) for name in names):
                return found
    return "application/zip"


def _declared(archive: zipfile.ZipFile) -> str | None:
    """Return the type that an archive declares in a member that is not the first, or is packed."""
    if "mimetype" not in archive.NameToInfo:
        return None
    try:
        with archive.open("mimetype") as member:
            found = member.read(100).decode("ascii").strip()
    except (
        zipfile.BadZipFile,
        zlib.error,
        RuntimeError,
        EOFError,
        NotImplementedError,
        ValueError,
    ):
        return None
    return found if found in (ODT, ODS, EPUB) else None


def _detect_text(head: bytes, suffix: str) -> str:
    if not head or not is_text(head):
        return UNKNOWN
    if _is_html(head.removeprefix(_BYTE_ORDER_MARKS[0])):
        return "text/html"
    if _is_mail(head):
        return "message/rfc822"
    return _TEXT_SUFFIXES.get(suffix, "text/plain")


def is_text(head: bytes) -> bool:
    """Return whether the first bytes of a file look like text."""
    if head.startswith(_BYTE_ORDER_MARKS):
        return True
    # In UTF-16 of Latin text, nearly every second byte is zero.
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if len(head) >= 4 and max(even, odd) > 0.4 * (len(head) // 2) and min(even, odd) == 0:
        return True
    control = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in head)
    return b"\0" not in head and control <= len(head) // 50


def _is_html(head: bytes) -> bool:
    """Tell whether an HTML tag follows white space, an XML declaration and comments."""
    head = head.lstrip()
    if head[:5].lower() == b"<?xml":
        head = head.partition(b">")[2].lstrip()
    at = 0
    while head.startswith(b"<!--", at):
        end = head.find(b"-->", at + 4)
        if end < 0:
            return False
        at = end + 3
        while head[at : at + 1].isspace():
            at += 1
    return _HTML_TAG.match(head, at) is not None


def _is_mail(head: bytes) -> bool:
    names, at = set(), 0
    if head.startswith(b"From "):  # mbox separator line
        at = head.find(b"\n") + 1
    while found := _HEADER.match(head, at):
        names.add(found[0].partition(b":")[0].lower())
        at = found.end()
    return len(names & _MAIL_HEADERS) >= 2 and bool(names & {b"from", b"received", b"subject"})
