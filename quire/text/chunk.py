"""Cuts the text of a page into pieces of a bounded number of tokens.

Pieces are in order, overlap by a few tokens, and leave out nothing but white space. The page is
counted once (see `tokens`); every cut is then a search in running sums.
"""

import unicodedata
from typing import NamedTuple

from quire.errors import BadInput
from quire.model.pages import Piece
from quire.text.tokens import Estimate, Ruler, TokenCounter

FEWEST_TOKENS = 16
MOST_TOKENS = 100_000

#: Where to cut if the corpus names no delimiter, best first; within a line all are as good.
_ENDS: tuple[tuple[str, ...], ...] = (
    ("\n\n", "\n\r\n"),
    (". ", "! ", "? ", ".\n", "!\n", "?\n", ".\r\n", "!\r\n", "?\r\n", "。", "！", "？", "।"),
    ("\n",),
    ("; ", ": ", "，", "、", "；"),
    (" ", "\t"),
)


class ChunkOptions(NamedTuple):
    """How a corpus wants its pages cut."""

    tokens: int = 352  # about 1,200 characters of English
    overlap: int = 32
    delimiter: str = ""

    def checked(self) -> "ChunkOptions":
        """Return these options, or refuse those that cannot be met."""
        if not FEWEST_TOKENS <= self.tokens <= MOST_TOKENS:
            wanted = f"expected {FEWEST_TOKENS} to {MOST_TOKENS:,}, got {self.tokens}"
            raise BadInput(f"chunk tokens: out of range ({wanted}).")
        if not 0 <= self.overlap <= self.tokens // 2:
            wanted = f"expected 0 to {self.tokens // 2}, half of the tokens, got {self.overlap}"
            raise BadInput(f"chunk overlap: out of range ({wanted}).")
        return self


def pieces(
    text: str, options: ChunkOptions | None = None, counter: TokenCounter | None = None
) -> list[Piece]:
    """Cut a page's text into pieces; a piece has at most `options.tokens` by `counter`."""
    options = (options or ChunkOptions()).checked()
    at, done = _visible(text, 0), 0
    if at == len(text):
        return []
    ruler = (counter or Estimate()).ruler(text)
    found: list[Piece] = []
    while at < len(text):
        reach = ruler.reach(at, options.tokens)
        if reach <= done:  # a long word follows: it and the overlap do not fit together
            at = _visible(text, done)
            reach = ruler.reach(at, options.tokens)
        cut = _cut(text, ruler, options, at, max(at, done), reach)
        stop = _trimmed(text, at, cut)
        if stop > done:
            found.append(Piece(at, stop, min(ruler.tokens(at, stop), options.tokens)))
        done = cut
        at = _resume(text, ruler, options.overlap, at, cut)
    return found


def _cut(text: str, ruler: Ruler, options: ChunkOptions, start: int, floor: int, reach: int) -> int:
    """Return the best place to end a piece, after `floor` and not after `reach`."""
    if reach == len(text):
        return reach
    lower = max(floor, start + (reach - start) // 2)
    wanted = (options.delimiter,) if options.delimiter else ()
    for marks, least in ((wanted, floor), *((marks, lower) for marks in _ENDS)):
        at = _last_of(marks, text, least, reach)
        # Half a word may count more than the whole: then the next kind of mark is tried.
        if at > least and ruler.tokens(start, _trimmed(text, start, at)) <= options.tokens:
            return at
    return _before_marks(text, floor, reach)


def _last_of(marks: tuple[str, ...], text: str, lower: int, upper: int) -> int:
    """Return where the last of the marks ends, or 0."""
    found = [(at, len(mark)) for mark in marks if (at := text.rfind(mark, lower, upper)) >= 0]
    return sum(max(found, default=(0, 0)))


def _resume(text: str, ruler: Ruler, overlap: int, start: int, cut: int) -> int:
    """Return where the next piece begins: some tokens before the cut, at a word."""
    after = _visible(text, cut)
    if after == len(text) or not overlap:
        return after
    earliest = ruler.back(cut, overlap)
    if not start < earliest < cut:
        return after
    begin = _visible(text, _word_start(text, earliest, cut))
    return begin if begin < after else after


def _visible(text: str, at: int) -> int:
    """Return where the first character that is not white space stands, from `at` on."""
    size = len(text)
    while at < size and text[at].isspace():
        at += 1
    return at


def _trimmed(text: str, start: int, stop: int) -> int:
    while stop > start and text[stop - 1].isspace():
        stop -= 1
    return stop


def _before_marks(text: str, floor: int, at: int) -> int:
    """Return `at`, or a place before it, so that no accent is parted from its letter."""
    place = at
    while place > floor and unicodedata.category(text[place])[0] == "M":
        place -= 1
    return place if place > floor else at


def _word_start(text: str, earliest: int, cut: int) -> int:
    """Return the first place from `earliest` on where a word begins."""
    for at in range(earliest, cut):
        if text[at].isspace() or text[at - 1].isspace():
            return at
    while earliest < cut and unicodedata.category(text[earliest])[0] == "M":
        earliest += 1
    return earliest
