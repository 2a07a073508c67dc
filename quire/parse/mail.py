"""E-mail messages (EML): the main headers, the body, what it quotes, and the attachments."""

import email
import email.policy
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from pathlib import Path
from typing import cast

from quire.errors import Unreadable
from quire.model import blocks
from quire.model.blocks import BlockKind
from quire.model.pages import Attachment, Outline, Page, PageFailure
from quire.parse import composer, encoding, markup, quoted
from quire.parse.composer import LINE_BREAK, Composer
from quire.parse.parser import BuiltinParser, ReadOptions, ReadRequest

MAX_BYTES = 200 << 20
_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_MAX_ATTACHMENTS = 1000


class MailParser(BuiltinParser):
    """EML files: headers and body are one page, what the body quotes another."""

    name = "mail"
    version = 4

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Raise Unreadable if the message is too large to be read at once."""
        check_size(path)
        return Outline(media_type, "whole", 1)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the headers and the body, then what the body quotes."""
        message = _message(request.path)
        headers = {name: _header(message, name) for name in _HEADERS}
        yield from pages(headers, list(_pieces(message)))


def pages(headers: Mapping[str, str], texts: Sequence[tuple[Page, Page]]) -> Iterator[Page]:
    """Compose a message: its headers and what the sender wrote, then what that quotes."""
    page = Composer()
    for name in _HEADERS:
        if found := composer.line(headers[name]):
            is_subject = name == "Subject"
            kind = BlockKind.HEADING if is_subject else BlockKind.PARAGRAPH
            runs = page.write(f"{name}: {found}", LINE_BREAK)
            # The name of the header is not a part of the heading.
            runs = ((runs[0][0] + is_subject, runs[0][1]),)
            page.block(kind, runs, int(is_subject))
    own = [each for each, _ in texts if each.text]
    older = [each for _, each in texts if each.text]
    if not own:  # a message that only forwards
        own, older = older, []
    for each in own:
        page.append(each)
    yield page.page(1)
    if older:
        page = Composer()
        for each in older:
            page.append(each)
        yield page.page(2, "quoted text")


def attachments(path: Path) -> list[Attachment]:
    """Return the attachments of a message under the names that the sender gave them."""
    found: list[Attachment] = []
    for part in _parts(_message(path)):
        name = _name(part)
        if name and len(found) < _MAX_ATTACHMENTS:
            found.append(Attachment(name, _content(part)))
    return found


def check_size(path: Path) -> None:
    """Raise Unreadable if a message is too large to be read at once."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise Unreadable(f"{path.name}: has {size >> 20:,} MiB (at most {MAX_BYTES >> 20} MiB).")


def _message(path: Path) -> Message:
    check_size(path)
    with path.open("rb") as file:
        return email.message_from_binary_file(file, policy=email.policy.compat32)


def _parts(message: Message) -> Iterator[Message]:
    """Yield the parts that are not multipart containers; a forwarded message is one part."""
    pending = [message]
    while pending:
        part = pending.pop(0)
        if part.get_content_maintype() == "multipart" and part.is_multipart():
            pending[:0] = _children(part)
        else:
            yield part


def _children(part: Message) -> list[Message]:
    if not part.is_multipart():
        return []
    return [p for p in cast(list[object], part.get_payload()) if isinstance(p, Message)]


def _pieces(message: Message) -> Iterator[tuple[Page, Page]]:
    """Yield each text of a message as what the sender wrote, and what that quotes."""
    pending = [message]
    while pending:
        part = pending.pop(0)
        if part.get_content_type() == "multipart/alternative":
            yield from _chosen([each for each in _parts(part) if _is_text(each)])
        elif part.get_content_maintype() == "multipart":
            pending[:0] = _children(part)
        elif _is_text(part):
            yield from _chosen([part])


def _is_text(part: Message) -> bool:
    return part.get_content_type() in ("text/plain", "text/html") and not _name(part)


def _chosen(alternatives: Sequence[Message]) -> list[tuple[Page, Page]]:
    by_type: dict[str, list[str]] = {"text/plain": [], "text/html": []}
    for each in alternatives:
        by_type[each.get_content_type()].append(_text(each))
    return chosen(by_type["text/plain"], by_type["text/html"])


def chosen(plain: Sequence[str], html: Sequence[str]) -> list[tuple[Page, Page]]:
    """Return the plain texts, or those in HTML if only these have text or a table.

    Each comes as what the sender wrote, and what that quotes.
    """
    written = [_plain_pages(each) for each in plain]
    has_text = any(own.text or older.text for own, older in written)
    if has_text and not any("<table" in each.lower() for each in html):
        return written
    composed = [
        (markup.html_page(own), markup.html_page(older))
        for own, older in map(quoted.split_html, html)
    ]
    is_better = not has_text or any(_has_table(own) for own, _ in composed)
    return composed if is_better else written


def _has_table(page: Page) -> bool:
    found = blocks.unpack(page.blocks, len(page.text.split()))
    return any(block.table is not None for block in found)


def _plain_pages(text: str) -> tuple[Page, Page]:
    own, older = (_paragraphs(each) for each in quoted.split_text(encoding.clean(text)))
    return own, older


def _paragraphs(text: str) -> Page:
    page = Composer()
    for paragraph in text.split("\n\n"):
        page.add(BlockKind.PARAGRAPH, paragraph.strip("\n"))
    return page.page(1)


def _name(part: Message) -> str | None:
    """Return the file name of a part that is an attachment, otherwise None."""
    if part.get_content_type() == "message/rfc822":
        inner = part.get_payload(0) if part.is_multipart() else None
        subject = _header(inner, "Subject") if isinstance(inner, Message) else ""
        return safe_name(f"{subject or 'message'}.eml")
    name = part.get_filename()
    if name:
        return safe_name(_decoded(name))
    return "attachment" if part.get_content_disposition() == "attachment" else None


def safe_name(name: str) -> str:
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
