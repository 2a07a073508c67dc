"""Messages (EML): the headers people read, the text of the message, and the files within it."""

import email
import email.policy
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path
from typing import cast

from quire.errors import Unreadable
from quire.model.pages import Attachment, Outline, Page, PageFailure
from quire.parse.markup import encoding, markup
from quire.parse.options import Options

VERSION = 1
MOST_BYTES = 200 << 20
_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_MOST_ATTACHMENTS = 1000


def look(path: Path, media_type: str) -> Outline:
    """Refuse a message that is too large to be read in one go."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise Unreadable(f"{path.name}: has {size >> 20:,} MiB (at most {MOST_BYTES >> 20} MiB).")
    return Outline(media_type, "whole", 1)


def read(
    path: Path,
    media_type: str,
    options: Options,
    first: int = 1,
    last: int = 1,
    *,
    known_image: Callable[[str], bool] | None = None,
) -> Iterator[Page | PageFailure]:
    """Yield the headers and the text of a message as one page."""
    message = _message(path)
    lines = [f"{name}: {found}" for name in _HEADERS if (found := _header(message, name))]
    yield Page(1, encoding.clean("\n".join(lines) + "\n\n" + _body(message)).strip())


def attachments(path: Path) -> list[Attachment]:
    """Return the files within a message, named as the sender named them."""
    found: list[Attachment] = []
    for part in _parts(_message(path)):
        name = _name(part)
        if name and len(found) < _MOST_ATTACHMENTS:
            found.append(Attachment(name, _content(part)))
    return found


def _message(path: Path) -> Message:
    if path.stat().st_size > MOST_BYTES:
        look(path, "")
    with path.open("rb") as file:
        return email.message_from_binary_file(file, policy=email.policy.compat32)


def _parts(message: Message) -> Iterator[Message]:
    """Yield what is not a container; a forwarded message counts as one part."""
    waiting = [message]
    while waiting:
        part = waiting.pop(0)
        if part.get_content_maintype() == "multipart" and part.is_multipart():
            waiting[:0] = [
                p for p in cast(list[object], part.get_payload()) if isinstance(p, Message)
            ]
        else:
            yield part


def _body(message: Message) -> str:
    """Return the plain text where there is one, else the HTML, as text."""
    plain, rich = [], []
    for part in _parts(message):
        if _name(part):
            continue
        if part.get_content_type() == "text/plain":
            plain.append(_text(part))
        elif part.get_content_type() == "text/html":
            rich.append(markup.html_text(_text(part)))
    return "\n\n".join(filter(None, plain if "".join(plain).strip() else rich))


def _name(part: Message) -> str | None:
    """Return the name of a part that is a file of its own."""
    if part.get_content_type() == "message/rfc822":
        inner = part.get_payload(0) if part.is_multipart() else None
        subject = _header(inner, "Subject") if isinstance(inner, Message) else ""
        return _safe(f"{subject or 'message'}.eml")
    name = part.get_filename()
    if name:
        return _safe(_decoded(name))
    return "attachment" if part.get_content_disposition() == "attachment" else None


def _safe(name: str) -> str:
    """Return the last part of a name, without what file systems and terminals trip over."""
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
    """Return a header with its =?…?= words decoded."""
    from email.errors import HeaderParseError
    from email.header import decode_header, make_header

    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, ValueError):
        return value
