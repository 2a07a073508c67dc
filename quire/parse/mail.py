"""E-mail messages (EML): the main headers, the body, what it quotes, and the attachments."""

import email
import email.policy
import re
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import cast

from quire.errors import Unreadable
from quire.model.blocks import BlockKind
from quire.model.pages import Attachment, Outline, Page, PageFailure
from quire.parse import composer, encoding, markup
from quire.parse.composer import LINE_BREAK, Composer
from quire.parse.parser import BuiltinParser, ReadOptions, ReadRequest

MAX_BYTES = 200 << 20
_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_MAX_ATTACHMENTS = 1000


#: Lines that mail programs write above the message that they quote, in the languages they know.
_QUOTE_INTRODUCTION = re.compile(
    r"(?:-{3,}\s?)(?:Original Message|Forwarded message|Ursprüngliche Nachricht|Message d'origine"
    r"|Mensaje original|Messaggio originale)\s?-{3,}"
    r"|(?:On|Am|Le|El|Il) .{5,200}(?:wrote|schrieb.{0,100}|a écrit|escribió|ha scritto)\s?:",
    re.IGNORECASE,
)
#: Introductions that take two lines are joined before they are looked at.
_LONGEST_INTRODUCTION = 300


class MailParser(BuiltinParser):
    """EML files: headers and body are one page, what the body quotes another."""

    name = "mail"
    version = 3

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Raise Unreadable if the message is too large to be read at once."""
        _check_size(path)
        return Outline(media_type, "whole", 1)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the headers and the body, then what the body quotes."""
        message = _message(request.path)
        page = Composer()
        for name in _HEADERS:
            if found := composer.line(_header(message, name)):
                is_subject = name == "Subject"
                kind = BlockKind.HEADING if is_subject else BlockKind.PARAGRAPH
                runs = page.write(f"{name}: {found}", LINE_BREAK)
                # The name of the header is not a part of the heading.
                runs = ((runs[0][0] + is_subject, runs[0][1]),)
                page.block(kind, runs, int(is_subject))
        own, quoted = _without_quotes(encoding.clean(_body(message)))
        _add_paragraphs(page, own)
        yield page.page(1)
        if quoted.strip():
            page = Composer()
            _add_paragraphs(page, quoted)
            yield page.page(2, "quoted text")


def _add_paragraphs(page: Composer, text: str) -> None:
    for paragraph in text.split("\n\n"):
        page.add(BlockKind.PARAGRAPH, paragraph.strip("\n"))


def _without_quotes(body: str) -> tuple[str, str]:
    """Return the lines that the sender wrote, and those quoted; a mark of quotation is left out."""
    own: list[str] = []
    quoted: list[str] = []
    lines = body.split("\n")
    is_quoting = False
    for at, line in enumerate(lines):
        start = line.strip()
        was_quoting, is_quoting = is_quoting, start.startswith(">")
        if is_quoting:
            if not was_quoting:
                _move_introduction(own, quoted)
            quoted.append(start.lstrip("> "))
        elif start.startswith("---") and _QUOTE_INTRODUCTION.fullmatch(start):
            # All that follows is the older message.
            return "\n".join(own), "\n".join((*quoted, *lines[at:]))
        else:
            own.append(line)
    if not "".join(own).strip():  # a message that only forwards
        return "\n".join(quoted), ""
    return "\n".join(own), "\n".join(quoted)


def _move_introduction(own: list[str], quoted: list[str]) -> None:
    """Move "On Monday Ida wrote:" to the quotation that it stands above."""
    end = len(own)
    while end and not own[end - 1].strip() and len(own) - end < 2:
        end -= 1
    for count in (1, 2):
        lines = own[max(0, end - count) : end]
        text = " ".join(line[-_LONGEST_INTRODUCTION:].strip() for line in lines)
        if lines and _QUOTE_INTRODUCTION.fullmatch(text):
            del own[end - count :]
            quoted += ["", *lines]
            return


def attachments(path: Path) -> list[Attachment]:
    """Return the attachments of a message under the names that the sender gave them."""
    found: list[Attachment] = []
    for part in _parts(_message(path)):
        name = _name(part)
        if name and len(found) < _MAX_ATTACHMENTS:
            found.append(Attachment(name, _content(part)))
    return found


def _check_size(path: Path) -> None:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise Unreadable(f"{path.name}: has {size >> 20:,} MiB (at most {MAX_BYTES >> 20} MiB).")


def _message(path: Path) -> Message:
    _check_size(path)
    with path.open("rb") as file:
        return email.message_from_binary_file(file, policy=email.policy.compat32)


def _parts(message: Message) -> Iterator[Message]:
    """Yield the parts that are not multipart containers; a forwarded message is one part."""
    pending = [message]
    while pending:
        part = pending.pop(0)
        if part.get_content_maintype() == "multipart" and part.is_multipart():
            pending[:0] = [
                p for p in cast(list[object], part.get_payload()) if isinstance(p, Message)
            ]
        else:
            yield part


def _body(message: Message) -> str:
    """Return the plain text parts, or the HTML parts as text if those are empty."""
    plain, html = [], []
    for part in _parts(message):
        if _name(part):
            continue
        if part.get_content_type() == "text/plain":
            plain.append(_text(part))
        elif part.get_content_type() == "text/html":
            html.append(markup.html_text(_text(part)))
    return "\n\n".join(filter(None, plain if "".join(plain).strip() else html))


def _name(part: Message) -> str | None:
    """Return the file name of a part that is an attachment, otherwise None."""
    if part.get_content_type() == "message/rfc822":
        inner = part.get_payload(0) if part.is_multipart() else None
        subject = _header(inner, "Subject") if isinstance(inner, Message) else ""
        return _safe_name(f"{subject or 'message'}.eml")
    name = part.get_filename()
    if name:
        return _safe_name(_decoded(name))
    return "attachment" if part.get_content_disposition() == "attachment" else None


def _safe_name(name: str) -> str:
    """Return the base name without characters that file systems and terminals mishandle."""
    last = encoding.clean(name).replace("\\", "/").rpartition("/")[2]
    return " ".join(last.split()).strip(". ")[-200:] or "attachment"


def _content(part: Message) -> bytes:
    if part.get_content_type() == "message/rfc822" and part.is_multipart():
        return cast(Message, part.get_payload(0)).as_bytes()
    found = part.get_payload(decode=True)
    return found if isinstance(found, bytes) else b""


def _text(part: Message) -> str:
    content = _content(part)
    name = part.get_content_charset()
    if name:
        try:
            return content.decode(name, "replace").replace("\r\n", "\n")
        except (LookupError, ValueError):
            pass
    return encoding.decode(content)


def _header(message: Message, name: str) -> str:
    found = message.get(name)
    return "" if found is None else " ".join(_decoded(str(found)).split())


def _decoded(value: str) -> str:
    """Return a header with its encoded words (=?…?=) decoded."""
    from email.errors import MessageError
    from email.header import decode_header, make_header

    try:
        return str(make_header(decode_header(value)))
    except (MessageError, LookupError, ValueError):
        return value
