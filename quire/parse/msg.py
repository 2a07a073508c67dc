"""Messages of Outlook (MSG): a compound file with a stream for each property.

The page is composed as that of other messages: headers, text, and what the text quotes.
"""

import re
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from quire.errors import Unreadable
from quire.model.pages import Attachment, Outline, Page, PageFailure
from quire.parse import encoding, mail, rtf
from quire.parse.compound import CompoundFile
from quire.parse.parser import BuiltinParser, ReadOptions, ReadRequest

_SUBJECT, _SENDER, _SENDER_ADDRESS = "0037", "0c1a", "5d01"
_TO, _CC, _BODY, _HTML, _RTF = "0e04", "0e03", "1000", "1013", "1009"
_FILE_NAME, _LONG_NAME, _CONTENT = "3704", "3707", "3701"
_DELIVERED, _SUBMITTED = 0x0E060040, 0x00390040
_CODE_PAGE = 0x3FFD0003
_TEXT, _BYTES_TEXT, _BINARY = "001f", "001e", "0102"
_PROPERTIES, _HEAD = "__properties_version1.0", 32
_ATTACHMENT = re.compile(r"(__attach_version1\.0_#[0-9a-f]{8})/")
_MAX_ATTACHMENTS = 1_000
_MAX_RTF = 50 << 20
#: What the compression of rich text starts with.
_DICTIONARY = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern "
    b"\\fscript \\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0"
    b"\\blue0\r\n\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)


class MsgParser(BuiltinParser):
    """MSG files."""

    name = "msg"

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Raise Unreadable if the message is too large to be read at once."""
        mail.check_size(path)
        return Outline(media_type, "whole", 1)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the headers and the body, then what the body quotes."""
        mail.check_size(request.path)
        message = _Message(CompoundFile(request.path))
        yield from mail.pages(message.headers(), message.body())


def attachments(path: Path) -> list[Attachment]:
    """Return the attachments of a message; a message inside it is not one of them."""
    mail.check_size(path)
    message = _Message(CompoundFile(path))
    folders = dict.fromkeys(
        found[1] for name in message.file.streams if (found := _ATTACHMENT.match(name))
    )
    kept: list[Attachment] = []
    for folder in sorted(folders)[:_MAX_ATTACHMENTS]:
        name = message.text(_LONG_NAME, folder) or message.text(_FILE_NAME, folder)
        content = message.file.read(f"{folder}/__substg1.0_{_CONTENT}{_BINARY}")
        if content:
            kept.append(Attachment(mail.safe_name(name), content))
    return kept


class _Message:
    def __init__(self, file: CompoundFile) -> None:
        self.file = file
        self._numbers = dict(self._fixed())
        page = self._numbers.get(_CODE_PAGE, 1252)
        self._code_page = "utf-8" if page == 65001 else f"cp{page}"

    def _fixed(self) -> Iterator[tuple[int, int]]:
        """Yield the properties that are numbers or times."""
        raw = self.file.read(_PROPERTIES)[_HEAD:]
        for tag, _, value in struct.iter_unpack("<IIQ", raw[: len(raw) // 16 * 16]):
            yield tag, value if tag & 0xFFFF == 0x40 else value & 0xFFFFFFFF

    def text(self, tag: str, folder: str = "") -> str:
        """Return a property that is text."""
        place = f"{folder}/__substg1.0_{tag}" if folder else f"__substg1.0_{tag}"
        if found := self.file.read(place + _TEXT):
            return encoding.clean(found.decode("utf-16-le", "replace"))
        return self._decoded(self.file.read(place + _BYTES_TEXT))

    def _decoded(self, content: bytes) -> str:
        try:
            return encoding.clean(content.decode(self._code_page, "replace"))
        except LookupError:
            return encoding.decode(content)

    def headers(self) -> dict[str, str]:
        """Return the main headers."""
        name, address = self.text(_SENDER), self.text(_SENDER_ADDRESS)
        sender = f"{name} <{address}>" if name and address and name != address else name or address
        return {
            "From": sender, "To": self.text(_TO), "Cc": self.text(_CC), "Date": self._date(),
            "Subject": self.text(_SUBJECT),
        }  # fmt: skip

    def _date(self) -> str:
        ticks = self._numbers.get(_SUBMITTED) or self._numbers.get(_DELIVERED) or 0
        try:
            # Tenths of a microsecond since 1601.
            sent = datetime(1601, 1, 1, tzinfo=UTC) + timedelta(microseconds=ticks // 10)
        except OverflowError:
            return ""
        return f"{sent:%Y-%m-%d %H:%M} UTC" if ticks else ""

    def body(self) -> list[tuple[Page, Page]]:
        """Return the text: what the sender wrote, and what it quotes."""
        plain, html = self.text(_BODY).replace("\r\n", "\n"), self._html()
        found = mail.chosen([plain] if plain.strip() else [], [html] if html.strip() else [])
        if found:
            return found
        rich = _unpacked(self.file.read(f"__substg1.0_{_RTF}{_BINARY}"))
        return [(page, Page(1, "")) for page in rtf.pages(rich)] if rich else []

    def _html(self) -> str:
        raw = self.file.read(f"__substg1.0_{_HTML}{_BINARY}")
        return encoding.decode(raw) if raw else self.text(_HTML)


def _unpacked(packed: bytes) -> bytes:
    """Return compressed rich text as it was."""
    if len(packed) < 16:
        return b""
    size, kind = int.from_bytes(packed[4:8], "little"), packed[8:12]
    if size > _MAX_RTF:
        raise Unreadable(f"its text has {size:,} bytes (at most {_MAX_RTF:,}).")
    if kind == b"MELA":
        return packed[16 : 16 + size]
    if kind != b"LZFu":
        return b""
    return _decompressed(packed[16:], size)


def _decompressed(packed: bytes, size: int) -> bytes:
    written = bytearray(_DICTIONARY)
    goal = len(_DICTIONARY) + size
    at = 0
    while at < len(packed) and len(written) < goal:
        flags, at = packed[at], at + 1
        for bit in range(8):
            if at >= len(packed) or len(written) >= goal:
                break
            if not flags >> bit & 1:
                written.append(packed[at])
                at += 1
                continue
            place = int.from_bytes(packed[at : at + 2], "big")
            at += 2
            offset, length = place >> 4, (place & 15) + 2
            # The offset is that in a ring of 4,096 bytes; where writing stands is the end.
            back = (len(written) - offset) % 4096
            if not back:
                return bytes(written[len(_DICTIONARY) :])
            for _ in range(length):
                written.append(written[-back] if back <= len(written) else 0x20)
    return bytes(written[len(_DICTIONARY) : goal])
