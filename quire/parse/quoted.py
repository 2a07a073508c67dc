"""Tells what a message quotes from what its sender wrote, in plain text and in HTML."""

import re
from collections.abc import Iterator

from quire.parse import markup

#: Lines that mail programs write above the message that they quote, in the languages they know.
_INTRODUCTION = re.compile(
    r"(?:-{3,}\s?)(?:Original Message|Forwarded message|Ursprüngliche Nachricht|Message d'origine"
    r"|Mensaje original|Messaggio originale)\s?-{3,}"
    r"|(?:On|Am|Le|El|Il) .{5,200}(?:wrote|schrieb.{0,100}|a écrit|escribió|ha scritto)\s?:",
    re.IGNORECASE,
)
#: Introductions that take two lines are joined before they are looked at.
_LONGEST_INTRODUCTION = 300
#: Elements that mail programs put around what they quote, …
_QUOTES = re.compile(
    r"\b(?:gmail_quote|moz-cite-prefix|yahoo_quoted|protonmail_quote|zmail_extra)\b", re.IGNORECASE
)
#: … or before it, without an end: Outlook.
_REST = re.compile(
    r"divRplyFwdMsg|appendonsend|reply-intro|border-top:\s?+solid #(?:E1E1E1|B5C4DF)\b",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(
    r"\b(class|type|id|style)\s?+=\s?+(?:\"([^\"]*+)\"|'([^']*+)'|([^\s>\"']++))", re.IGNORECASE
)
_LONGEST_TAG = 2_000


def split_text(body: str) -> tuple[str, str]:
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
        elif start.startswith("---") and _INTRODUCTION.fullmatch(start):
            # All that follows is the older message.
            return "\n".join(own), "\n".join((*quoted, *lines[at:]))
        else:
            own.append(line)
    return "\n".join(own), "\n".join(quoted)


def _move_introduction(own: list[str], quoted: list[str]) -> None:
    """Move "On Monday Ida wrote:" to the quotation that it stands above."""
    end = len(own)
    while end and not own[end - 1].strip() and len(own) - end < 2:
        end -= 1
    for count in (1, 2):
        lines = own[max(0, end - count) : end]
        text = " ".join(line[-_LONGEST_INTRODUCTION:].strip() for line in lines)
        if lines and _INTRODUCTION.fullmatch(text):
            del own[end - count :]
            quoted += ["", *lines]
            return


def split_html(html: str) -> tuple[str, str]:
    """Return HTML without the elements that quote, and those elements."""
    own: list[str] = []
    quoted: list[str] = []
    for is_quoted, piece in _pieces(html):
        (quoted if is_quoted else own).append(piece)
    return "".join(own), "".join(quoted)


def _pieces(html: str) -> Iterator[tuple[bool, str]]:
    """Yield the pieces of HTML in order, each with whether it is inside a quoting element."""
    start = depth = 0
    quoting = ""  # the name of the element that quotes
    for tag in markup.tags(html):
        if quoting:
            if tag.name == quoting:
                depth += -1 if tag.is_end else 1
            if not depth:
                yield True, html[start : tag.stop]
                start, quoting = tag.stop, ""
        elif not tag.is_end and (found := _starts_quote(tag, html)):
            yield False, html[start : tag.at]
            start, depth = tag.at, 1
            if found == "rest":
                break
            quoting = tag.name
    yield bool(depth), html[start:]


def _starts_quote(tag: markup.Tag, html: str) -> str:
    """Return `element` or `rest` if a tag starts what is quoted, otherwise nothing."""
    found = ""
    for name, *values in _ATTRIBUTE.findall(html, tag.at, min(tag.stop, tag.at + _LONGEST_TAG)):
        value = "".join(values)
        if _REST.search(value):
            return "rest"
        is_cited = tag.name == "blockquote" and (name.lower(), value.lower()) == ("type", "cite")
        if is_cited or (name.lower() == "class" and _QUOTES.search(value)):
            found = "element"
    return found
