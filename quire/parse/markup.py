"""HTML as its visible text; Markdown and plain text unchanged."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from quire.errors import Unreadable
from quire.model.pages import Outline, Page, PageFailure
from quire.parse import encoding
from quire.parse.parser import BuiltinParser, ReadRequest

MAX_BYTES = 50 << 20
#: Characters that are worked on at a time, and pieces of text that are kept apart: a page of
#: 46 MB in one go took a gigabyte.
_SLICE, _PIECES = 1 << 20, 1 << 16

_UNSEEN = frozenset(("script", "style", "template", "noscript", "svg", "math", "iframe", "object"))
_PARAGRAPHS = re.compile("p|h[1-6]|table|ul|ol|pre|blockquote|section|title")
_BLOCKS = re.compile(
    "address|article|aside|body|br|caption|d[dlt]|details|div|fieldset|figcaption|figure|footer"
    "|form|header|hr|html|li|main|nav|option|summary|tbody|tfoot|thead|tr"
)
_CELLS = frozenset(("td", "th"))
_SPACE = re.compile(r"[^\S\n]+")
_EDGES = re.compile(r" ?\n ?")
_GAPS = re.compile(r"\n{3,}")
#: Where a slice may end: no text is cut before a tag, and no run of spaces inside a word.
_TAG, _INSIDE = re.compile("<"), re.compile(r"(?<=\S)\S")


class MarkupParser(BuiltinParser):
    """HTML, Markdown and plain text; the file is one page."""

    name = "markup"

    def inspect(self, path: Path, media_type: str) -> Outline:
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
        self.inspect(request.path, request.media_type)
        text = encoding.decode(request.path.read_bytes())
        yield Page(1, html_text(text) if request.media_type == "text/html" else text)


def html_text(markup: str) -> str:
    """Return what a reader sees of HTML, a line for each block."""
    reader = _Reader()
    for piece in _slices(markup, _TAG):
        reader.feed(piece)
    reader.close()
    return reader.text()


def _slices(text: str, place: re.Pattern[str]) -> Iterator[str]:
    """Cut text, each time where the pattern is found next."""
    start = 0
    while start < len(text):
        found = place.search(text, start + _SLICE)
        stop = found.start() if found else len(text)
        yield text[start:stop]
        start = stop


def _tidied(text: str) -> str:
    return _GAPS.sub("\n\n", _EDGES.sub("\n", _SPACE.sub(" ", text)))


class _Reader(HTMLParser):
    """Collects text; hidden elements are counted, because broken pages never close them all."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._packed: list[str] = []
        self._parts: list[str] = []
        self._unseen: str | None = None
        self._depth = 0
        self._as_is = 0

    def _start(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._unseen:
            self._depth += tag == self._unseen
        elif tag in _UNSEEN:
            self._unseen, self._depth = tag, 1
        else:
            self._as_is += tag == "pre"
            self._break(tag)

    def _empty(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self._unseen:
            self._break(tag)

    def _end(self, tag: str) -> None:
        if self._unseen:
            self._depth -= tag == self._unseen
            if not self._depth:
                self._unseen = None
            return
        if tag == "pre":
            self._as_is = max(0, self._as_is - 1)
        self._break(tag)

    def _characters(self, text: str) -> None:
        if not self._unseen:
            self._parts.append(text if self._as_is else text.replace("\n", " "))
            if len(self._parts) > _PIECES:
                self._pack()

    def text(self) -> str:
        whole = "".join([*self._packed, *self._parts])
        self._packed, self._parts = [], []
        return encoding.clean("".join(map(_tidied, _slices(whole, _INSIDE))).strip())

    def _pack(self) -> None:
        """Join what is here but the last words, which decide whether a new line is begun."""
        last = len(self._parts) - 1
        while last and not self._parts[last].strip(" "):
            last -= 1
        self._packed.append("".join(self._parts[:last]))
        # Of blanks one is enough, and so many would be passed again with every further one.
        self._parts = (
            [self._parts[last], " "] if last < len(self._parts) - 1 else self._parts[last:]
        )

    def _break(self, tag: str) -> None:
        if _PARAGRAPHS.fullmatch(tag):
            self._parts.append("\n\n")
        elif _BLOCKS.fullmatch(tag):
            self._start_line()
        elif tag in _CELLS:
            self._parts.append(" ")

    def _start_line(self) -> None:
        while self._parts and not self._parts[-1].strip(" "):
            self._parts.pop()
        if self._parts and not self._parts[-1].endswith("\n"):
            self._parts.append("\n")

    handle_starttag = _start
    handle_startendtag = _empty
    handle_endtag = _end
    handle_data = _characters  # type: ignore[assignment]
