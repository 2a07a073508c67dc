"""Splits the text of a page into chunks of a bounded number of tokens.

Chunks are in order, overlap by a few tokens, and leave out nothing but white space. The tokens of
a page are counted once (see `tokens`); each cut is then a search in prefix sums.
"""

import unicodedata
from typing import NamedTuple

from quire.errors import BadInput
from quire.model.pages import ChunkSpan
from quire.text.tokens import TokenOffsets

MIN_TOKENS = 16
MAX_TOKENS = 100_000

#: Where to cut if the corpus sets no delimiter, best first; those in one line are equal.
_SEPARATORS: tuple[tuple[str, ...], ...] = (
    ("\n\n", "\n\r\n"),
    (". ", "! ", "? ", ".\n", "!\n", "?\n", ".\r\n", "!\r\n", "?\r\n", "。", "！", "？", "।"),
    ("\n",),
    ("; ", ": ", "，", "、", "；"),
    (" ", "\t"),
)


class ChunkOptions(NamedTuple):
    """How the pages of a corpus are split."""

    tokens: int = 352  # about 1,200 characters of English
    overlap: int = 32
    delimiter: str = ""

    def checked(self) -> "ChunkOptions":
        """Return these options, or raise BadInput."""
        if not MIN_TOKENS <= self.tokens <= MAX_TOKENS:
            expected = f"expected {MIN_TOKENS} to {MAX_TOKENS:,}, got {self.tokens}"
            raise BadInput(f"chunk tokens: out of range ({expected}).")
        if not 0 <= self.overlap <= self.tokens // 2:
            expected = f"expected 0 to {self.tokens // 2}, half of the tokens, got {self.overlap}"
            raise BadInput(f"chunk overlap: out of range ({expected}).")
        return self


def split(text: str, options: ChunkOptions | None = None) -> list[ChunkSpan]:
    """Split the text of a page into chunks of at most `options.tokens` (estimated) tokens."""
    options = (options or ChunkOptions()).checked()
    at, done = _skip_space(text, 0), 0
    if at == len(text):
        return []
    offsets = TokenOffsets(text)
    found: list[ChunkSpan] = []
    while at < len(text):
        limit = offsets.end_within(at, options.tokens)
        cut = _best_cut(text, options.delimiter, at, max(at, done), limit)
        stop = _trim_end(text, at, cut)
        if stop > done:
            found.append(ChunkSpan(at, stop, offsets.count(at, stop)))
        done = cut
        at = _next_start(text, offsets, options.overlap, at, cut)
    return found


def _best_cut(text: str, delimiter: str, start: int, floor: int, limit: int) -> int:
    """Return the best end of a chunk, after `floor` and at most `limit`."""
    if limit == len(text):
        return limit
    middle = max(floor, start + (limit - start) // 2)
    own = (delimiter,) if delimiter else ()
    for separators, lowest in ((own, floor), *((each, middle) for each in _SEPARATORS)):
        ends = [(at, len(s)) for s in separators if (at := text.rfind(s, lowest, limit)) >= 0]
        at = sum(max(ends, default=(0, 0)))
        if at > lowest:
            return at
    # No combining mark is separated from its letter.
    cut = limit
    while cut > floor and unicodedata.category(text[cut])[0] == "M":
        cut -= 1
    return cut if cut > floor else limit


def _next_start(text: str, offsets: TokenOffsets, overlap: int, start: int, cut: int) -> int:
    """Return the start of the next chunk: `overlap` tokens before the cut, at a word."""
    after = _skip_space(text, cut)
    if after == len(text) or not overlap:
        return after
    earliest = offsets.start_within(cut, overlap)
    if not start < earliest < cut:
        return after
    begin = _skip_space(text, _word_start(text, earliest, cut))
    return begin if begin < after else after


def _skip_space(text: str, at: int) -> int:
    size = len(text)
    while at < size and text[at].isspace():
        at += 1
    return at


def _trim_end(text: str, start: int, stop: int) -> int:
    while stop > start and text[stop - 1].isspace():
        stop -= 1
    return stop


def _word_start(text: str, earliest: int, cut: int) -> int:
    """Return the first start of a word from `earliest` on."""
    for at in range(earliest, cut):
        if text[at].isspace() or text[at - 1].isspace():
            return at
    while earliest < cut and unicodedata.category(text[earliest])[0] == "M":
        earliest += 1
    return earliest
