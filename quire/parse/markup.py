"""HTML as its visible text with blocks; Markdown with blocks; plain text unchanged.

HTML is tokenized by one regular expression, in time linear in its length: each construct ends at
its terminator or at the end of the text, as the HTML standard says, and the quantifiers are
possessive. No tree is built: a conforming tree takes quadratic time and memory on hostile input
(docs/dependencies.md compares html.parser, lexbor and lxml).
"""

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import encoding, markdown
from quire.parse.html_structure import Structure
from quire.parse.parser import BuiltinParser, ReadOptions, ReadRequest

MAX_BYTES = 50 << 20

_ATTRIBUTES = r"(?:[^>=]++|=\s*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))?+)*+"
_TOKEN = re.compile(
    r"(?P<text>[^<]++)"
    rf"|<(?P<slash>/?+)(?P<name>[a-zA-Z][^\s/>]*+){_ATTRIBUTES}(?P<tag>>|\Z)"
    r"|<!--(?:>|->|(?s:.*?)(?:--!?>|\Z))"
    r"|<(?:[!?]|/(?!\Z))[^>]*+(?:>|\Z)"
    r"|(?P<less><)"
)
_HIDDEN = frozenset(("script", "style", "template", "noscript", "svg", "math", "iframe", "object"))
#: Elements whose content is not markup, and the pattern that ends it.
_RAW_ELEMENTS = "script style xmp iframe noembed noframes noscript textarea title"
_RAW_END = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW_ELEMENTS.split()
}
_RAW_SHOWN = frozenset(("textarea", "title", "xmp"))

#: What the start and the end of an element become; \v starts a new line unless already at one.
_BREAKS = {
    tag: mark
    for mark, tags in {
        "\n\n": "p h1 h2 h3 h4 h5 h6 table ul ol pre blockquote section title",
        "\v": "address article aside body br caption dd dl dt details div fieldset figcaption"
        " figure footer form header hr html li main nav option summary tbody tfoot thead tr",
        " ": "td th",
    }.items()
    for tag in tags.split()
}
#: Bounds memory: parts are joined, and white space is normalized, this many at a time.
_MAX_PARTS, _SLICE = 1 << 16, 1 << 20
_KEPT_SPACE, _TAB = "\x01", 4  # `encoding.clean` makes it a space again
_MAX_LISTS = 1_000  # inside each other
_START = re.compile(r"\sstart\s*+=\s*+[\"']?+\s*+(\d{1,9})", re.IGNORECASE)
_NOT_SPACE = re.compile(r"\S")
_SPACES = re.compile(r" [^\S\n\v]+|[^\S\n\v ][^\S\n\v]*")  # all but a single blank
_SPACE_AT_BREAK = re.compile(r" (?=[\n\v])|(?<=[\n\v]) ")
_REPEATED_LINE = re.compile(r"(?<=[\n\v])\v+")
_REPEATED_PARAGRAPH = re.compile(r"\n{3,}")


class MarkupParser(BuiltinParser):
    """HTML, Markdown and plain text; the file is one page."""

    name = "markup"
    version = 4

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Raise Unreadable if the file is too large to be read at once."""
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise Unreadable(
                f"{path.name}: has {size:,} bytes of text (at most {MAX_BYTES:,}). "
                "Split it and ingest the parts."
            )
        return Outline(media_type, "whole", 1)

    def read(self, request: ReadRequest) -> Iterator[Page | PageFailure]:
        """Yield the whole text as one page."""
        self.inspect(request.path, request.media_type, request.options)
        text = encoding.decode(request.path.read_bytes())
        if request.media_type == "text/html":
            yield html_page(text)
        elif request.media_type == "text/markdown":
            yield markdown.page(text)
        else:
            yield Page(1, text)


class Tag(NamedTuple):
    """A tag, and where it is."""

    name: str
    is_end: bool
    at: int
    stop: int


def tags(markup: str) -> Iterator[Tag]:
    """Yield the tags of HTML; not those inside of scripts and other raw elements."""
    at = 0
    while token := _TOKEN.match(markup, at):
        at = token.end()
        if token.lastgroup != "tag":
            continue
        name, is_end = token["name"].lower(), bool(token["slash"])
        yield Tag(name, is_end, token.start(), at)
        if name in _RAW_END and not is_end:
            end = _RAW_END[name].search(markup, at)
            at = end.start() if end else len(markup)


def html_text(markup: str) -> str:
    """Return the visible text of HTML, one line per block element."""
    return html_page(markup).text


def html_page(markup: str) -> Page:
    """Return the visible text of HTML and its blocks."""
    text = _VisibleText()
    at = 0
    while token := _TOKEN.match(markup, at):  # every character starts a token, up to the end
        at = token.end()
        if token.lastgroup == "text":
            text.add(_unescape(token["text"]))
        elif token.lastgroup == "tag":
            at = _add_tag(text, markup, token)
        elif token.lastgroup == "less":
            text.add("<")
    return Page(1, text.finish(), blocks=text.structure.packed())


def _add_tag(text: "_VisibleText", markup: str, tag: re.Match[str]) -> int:
    """Add a tag, and the content of a raw element; return where to continue."""
    name, at = tag["name"].lower(), tag.end()
    if tag["slash"]:
        text.end(name)
        return at
    if name in ("svg", "math") and markup[at - 2] == "/":
        return at  # only foreign elements can be self-closing
    if name == "plaintext":
        text.add(markup[at:])
        return len(markup)
    text.start(name, tag[0])
    if name not in _RAW_END:
        return at
    end = _RAW_END[name].search(markup, at)
    stop = end.start() if end else len(markup)
    if name in _RAW_SHOWN:
        content = markup[at:stop]
        text.add(content if name == "xmp" else _unescape(content))
    return stop


def _unescape(text: str) -> str:
    if "&" not in text:
        return text
    try:
        return html.unescape(text)
    except ValueError:  # a reference of more digits than int() accepts
        return text


class _VisibleText:
    """Collects the text outside of hidden elements."""

    def __init__(self) -> None:
        self._joined: list[str] = []
        self._parts: list[str] = []
        self._hidden: str | None = None
        self._depth = 0  # of elements named like the hidden one
        self._preformatted = 0
        self._words: list[str] = []  # since the last break
        self._lists: list[int | None] = []  # the last number of each open list; None has bullets
        self._number = ""  # of a list item that has no text yet
        self.structure = Structure()

    def start(self, tag: str, markup: str = "") -> None:
        if self._hidden:
            self._depth += tag == self._hidden
        elif tag in _HIDDEN:
            self._hidden, self._depth = tag, 1
        else:
            self._preformatted += tag == "pre"
            self._break(tag)
            self.structure.start(tag, markup)
            self._start_item(tag, markup)

    def end(self, tag: str) -> None:
        if self._hidden:
            self._depth -= tag == self._hidden
            if not self._depth:
                self._hidden = None
            return
        if tag == "pre":
            self._preformatted = max(0, self._preformatted - 1)
        self._break(tag)
        self.structure.end(tag)
        if tag == "li":
            self._number = ""
        elif tag in ("ol", "ul") and self._lists:
            self._lists.pop()

    def _start_item(self, tag: str, markup: str) -> None:
        """Count an item of a numbered list; its number stands before its first text."""
        if tag in ("ol", "ul"):
            start = _START.search(markup)
            first = int(start[1]) if start else 1
            if len(self._lists) < _MAX_LISTS:
                self._lists.append(first - 1 if tag == "ol" else None)
        elif tag == "li" and self._lists:
            last = self._lists[-1]
            self._lists[-1] = None if last is None else last + 1
            self._number = "" if last is None else f"{last + 1}. "

    def add(self, text: str) -> None:
        if not self._hidden:
            if self._number and not text.isspace():
                text, self._number = self._number + text, ""
            self._words.append(text)
            if self._preformatted:
                text = text.expandtabs(_TAB).replace(" ", _KEPT_SPACE)
            else:
                text = text.replace("\n", " ")
            self._parts.append(text)
            if len(self._parts) > _MAX_PARTS:
                self._join()

    def finish(self) -> str:
        self._join()
        self._count()
        whole = "".join(self._joined)
        self._joined = []
        return encoding.clean("".join(map(_normalize, _slices(whole)))).strip()

    def _break(self, tag: str) -> None:
        if tag in _BREAKS:
            self._parts.append(_BREAKS[tag])
            self._count()

    def _count(self) -> None:
        """Tell the structure of the words since the last break: none goes over a break."""
        if self._words:
            self.structure.add(encoding.clean("".join(self._words)))
            self._words = []

    def _join(self) -> None:
        self._joined.append("".join(self._parts))
        self._parts = []


def _slices(text: str) -> Iterator[str]:
    """Yield parts of a text, each starting at a character that is not white space."""
    start = 0
    while start < len(text):
        found = _NOT_SPACE.search(text, start + _SLICE)
        stop = found.start() if found else len(text)
        yield text[start:stop]
        start = stop


def _normalize(text: str) -> str:
    """Collapse spaces to one and blank lines to one, and drop spaces at line breaks."""
    text = _SPACE_AT_BREAK.sub("", _SPACES.sub(" ", text))
    text = _REPEATED_LINE.sub("", text).replace("\v", "\n")
    return _REPEATED_PARAGRAPH.sub("\n\n", text)
