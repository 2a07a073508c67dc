"""Counts the tokens of a text for the chunker: with a tokeniser's units, or without one.

A *ruler* is laid along one page and then says for any stretch how many tokens it has, and how far
a number of tokens goes. It may count a few too many, never too few: pieces stay within the limit.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Ruler(Protocol):
    """The tokens along one text."""

    def tokens(self, start: int, stop: int) -> int:
        """Return the tokens of a stretch as a text of its own."""
        ...

    def reach(self, start: int, tokens: int) -> int:
        """Return the furthest end of a stretch of at most so many tokens; always past `start`."""
        ...

    def back(self, stop: int, tokens: int) -> int:
        """Return the earliest start of a stretch that ends here and has about so many tokens."""
        ...


class TokenCounter(Protocol):
    """What the chunker needs of a tokeniser."""

    @property
    def name(self) -> str:
        """The counter and its version, for reuse keys."""
        ...

    def count(self, text: str) -> int:
        """Count the tokens of a text on its own."""
        ...

    def ruler(self, text: str) -> Ruler:
        """Count along a text."""
        ...


class Estimate:
    """Counts by the kind of each character, as no tokeniser need be on this machine.

    The weights were fitted to Llama 2 on technical English, and are a tenth above it there.
    Pages are cut alike whatever the embedder, so that another one needs no other pieces.
    """

    name = "estimate-1"

    def count(self, text: str) -> int:
        """Count the tokens of a text on its own."""
        return -(-int(_weights(text).sum()) // _WHOLE)

    def ruler(self, text: str) -> "EstimateRuler":
        """Count along a text."""
        return EstimateRuler(text)


class EstimateRuler:
    """Running sums of weights, a character at a time."""

    def __init__(self, text: str) -> None:
        self._sums = _weights(text).cumsum()

    def tokens(self, start: int, stop: int) -> int:
        """Return the tokens of a stretch as a text of its own."""
        return -(-(self._until(stop) - self._until(start)) // _WHOLE)

    def reach(self, start: int, tokens: int) -> int:
        """Return the furthest end of a stretch of at most so many tokens; always past `start`."""
        end = self._sums.searchsorted(self._until(start) + tokens * _WHOLE, side="right")
        return max(start + 1, int(end))

    def back(self, stop: int, tokens: int) -> int:
        """Return the earliest start of a stretch that ends here and has about so many tokens."""
        return int(self._sums.searchsorted(self._until(stop) - tokens * _WHOLE, side="left")) + 1

    def _until(self, at: int) -> int:
        return int(self._sums[at - 1]) if at else 0


class UnitRuler:
    """Exact running sums over *units*: stretches that tokenise independently of each other.

    `lengths` and `counts` are the characters and tokens of each unit. A unit never has more tokens
    than bytes, nor one that begins a text more than one token more: that bounds half a unit.
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

    def tokens(self, start: int, stop: int) -> int:
        """Return the tokens of a stretch as a text of its own."""
        first = bisect_right(self._ends, start)
        last = bisect_left(self._ends, stop)
        if first >= last:
            half = stop < self._ends[last]
            return _bytes(self._text[start:stop]) + 1 if half else self._opening(start, last)
        counted = self._opening(start, first) + self._sums[last] - self._sums[first]
        if stop < self._ends[last]:
            counted += _bytes(self._text[self._ends[last - 1] : stop]) - self._counts[last]
        return counted

    def reach(self, start: int, tokens: int) -> int:
        """Return the furthest end of a stretch of at most so many tokens; always past `start`."""
        first = bisect_right(self._ends, start)
        # A rest that cannot fit is not counted: a word of a megabyte would be at every piece.
        fits = self._ends[first] - start <= tokens * _LONGEST_TOKEN
        if fits and (opening := self._opening(start, first)) <= tokens:
            last = bisect_right(self._sums, self._sums[first] + tokens - opening)
            return self._ends[last - 1]
        stop = start + 1  # a word longer than a piece
        room = tokens - 1 - _bytes(self._text[start])
        while stop < self._ends[first] and (room := room - _bytes(self._text[stop])) >= 0:
            stop += 1
        return stop

    def back(self, stop: int, tokens: int) -> int:
        """Return the earliest start of a stretch that ends here and has about so many tokens."""
        last = bisect_left(self._ends, stop)
        return self._ends[bisect_left(self._sums, self._sums[last] - tokens)]

    def _opening(self, start: int, unit: int) -> int:
        # Exact, as a word at the beginning of a text is not the token it is after a line break;
        # inside a unit its rest is counted anew.
        return self._count(self._text[start : self._ends[unit]])


def _bytes(part: str) -> int:
    return len(part.encode("utf-8", "surrogatepass"))


_LONGEST_TOKEN = 64  # characters
_WHOLE = 100  # weights are hundredths of a token
_LETTER, _CAPITAL, _SPACE, _ACCENTED, _OTHER = 19, 45, 42, 60, 110
_ALPHABETS = 0x700  # Latin, Greek, Cyrillic, Armenian, Hebrew and Arabic are below


def _weights(text: str) -> "NDArray[np.int64]":
    """Return the weight of each character."""
    import numpy as np

    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    found: NDArray[np.int64] = _table().take(points, mode="clip")
    return found


@cache
def _table() -> "NDArray[np.int64]":
    """Return the weights by code point; the last one is that of all the rest."""
    import numpy as np

    table = np.full(_ALPHABETS + 1, _ACCENTED, np.int64)
    table[_ALPHABETS] = _OTHER
    table[:0x80] = 70
    table[ord("a") : ord("z") + 1] = _LETTER
    table[ord("A") : ord("Z") + 1] = _CAPITAL
    table[ord("0") : ord("9") + 1] = _WHOLE
    table[[ord(" "), 0xA0]] = _SPACE
    table[[ord("\n"), ord("\r")]] = _WHOLE // 2  # mostly in pairs
    return table
