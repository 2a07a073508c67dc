"""Counts tokens for the chunker, exactly with a tokenizer or estimated without one.

`TokenOffsets` are the prefix sums of one page: they give the tokens of any part of it, and how far
a number of tokens reaches. They may count too many, never too few, so chunks stay below the limit.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class TokenOffsets(Protocol):
    """The positions of the tokens of one text."""

    def count(self, start: int, stop: int) -> int:
        """Return the number of tokens of text[start:stop] as a text of its own."""

    def end_within(self, start: int, tokens: int) -> int:
        """Return the furthest end from `start` with at most `tokens` tokens; at least start + 1."""

    def start_within(self, stop: int, tokens: int) -> int:
        """Return the earliest start of a part that ends at `stop` and has about `tokens` tokens."""


class TokenCounter(Protocol):
    """What the chunker needs from a tokenizer."""

    @property
    def name(self) -> str:
        """Name and version, part of reuse keys."""

    def count(self, text: str) -> int:
        """Count the tokens of a text."""

    def offsets(self, text: str) -> TokenOffsets:
        """Return the token positions of a text."""


class EstimatedCounter:
    """Estimates by the kind of each character, without a tokenizer.

    The weights were fitted to Llama 2 on technical English and count a tenth too many there. Chunks
    do not depend on the embedder, so changing it does not change the chunks.
    """

    name = "estimate-1"

    def count(self, text: str) -> int:
        """Count the tokens of a text."""
        return -(-int(_weights(text).sum()) // _WHOLE)

    def offsets(self, text: str) -> "EstimatedOffsets":
        """Return the token positions of a text."""
        return EstimatedOffsets(text)


class EstimatedOffsets:
    """Prefix sums of the weights of the characters."""

    def __init__(self, text: str) -> None:
        self._sums = _weights(text).cumsum()

    def count(self, start: int, stop: int) -> int:
        """Return the number of tokens of text[start:stop] as a text of its own."""
        return -(-(self._until(stop) - self._until(start)) // _WHOLE)

    def end_within(self, start: int, tokens: int) -> int:
        """Return the furthest end from `start` with at most `tokens` tokens; at least start + 1."""
        end = self._sums.searchsorted(self._until(start) + tokens * _WHOLE, side="right")
        return max(start + 1, int(end))

    def start_within(self, stop: int, tokens: int) -> int:
        """Return the earliest start of a part that ends at `stop` and has about `tokens` tokens."""
        return int(self._sums.searchsorted(self._until(stop) - tokens * _WHOLE, side="left")) + 1

    def _until(self, at: int) -> int:
        return int(self._sums[at - 1]) if at else 0


class ExactOffsets:
    """Exact prefix sums over *units*: parts that are tokenized independently of each other.

    `lengths` and `counts` are the characters and tokens of each unit. A unit has at most as many
    tokens as bytes, plus one if it starts a text: that bounds the count of a partial unit.
    """

    def __init__(
        self,
        text: str,
        count: Callable[[str], int],
        lengths: Sequence[int],
        counts: Sequence[int],
    ) -> None:
        self._text, self._count, self._counts = text, count, counts
        self._ends = list(accumulate(lengths))
        self._sums = list(accumulate(counts))

    def count(self, start: int, stop: int) -> int:
        """Return the number of tokens of text[start:stop] as a text of its own."""
        first = bisect_right(self._ends, start)
        last = bisect_left(self._ends, stop)
        if first >= last:
            is_partial = stop < self._ends[last]
            return _bytes(self._text[start:stop]) + 1 if is_partial else self._opening(start, last)
        counted = self._opening(start, first) + self._sums[last] - self._sums[first]
        if stop < self._ends[last]:
            counted += _bytes(self._text[self._ends[last - 1] : stop]) - self._counts[last]
        return counted

    def end_within(self, start: int, tokens: int) -> int:
        """Return the furthest end from `start` with at most `tokens` tokens; at least start + 1."""
        first = bisect_right(self._ends, start)
        # Do not count a rest that cannot fit: a word of a megabyte would be counted per chunk.
        fits = self._ends[first] - start <= tokens * _LONGEST_TOKEN
        if fits and (opening := self._opening(start, first)) <= tokens:
            last = bisect_right(self._sums, self._sums[first] + tokens - opening)
            return self._ends[last - 1]
        stop = start + 1  # a word longer than a chunk
        room = tokens - 1 - _bytes(self._text[start])
        while stop < self._ends[first] and (room := room - _bytes(self._text[stop])) >= 0:
            stop += 1
        return stop

    def start_within(self, stop: int, tokens: int) -> int:
        """Return the earliest start of a part that ends at `stop` and has about `tokens` tokens."""
        last = bisect_left(self._ends, stop)
        return self._ends[bisect_left(self._sums, self._sums[last] - tokens)]

    def _opening(self, start: int, unit: int) -> int:
        # Count again: at the start of a text, a word or its rest has other tokens than inside.
        return self._count(self._text[start : self._ends[unit]])


def encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _bytes(part: str) -> int:
    return len(part.encode("utf-8", "surrogatepass"))


_LONGEST_TOKEN = 64  # characters
_WHOLE = 100  # weights are in hundredths of a token
_LETTER, _CAPITAL, _SPACE, _ACCENTED, _OTHER = 19, 45, 42, 60, 110
_ALPHABETS = 0x700  # Latin, Greek, Cyrillic, Armenian, Hebrew and Arabic are below


def _weights(text: str) -> "NDArray[np.int64]":
    import numpy as np

    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    found: NDArray[np.int64] = _table().take(points, mode="clip")
    return found


@cache
def _table() -> "NDArray[np.int64]":
    """Return the weights by code point; the last one is for all others."""
    import numpy as np

    table = np.full(_ALPHABETS + 1, _ACCENTED, np.int64)
    table[_ALPHABETS] = _OTHER
    table[:0x80] = 70
    table[ord("a") : ord("z") + 1] = _LETTER
    table[ord("A") : ord("Z") + 1] = _CAPITAL
    table[ord("0") : ord("9") + 1] = _WHOLE
    table[[ord(" "), 0xA0]] = _SPACE
    table[[ord("\n"), ord("\r")]] = _WHOLE // 2  # usually in pairs
    return table
