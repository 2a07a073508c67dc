"""Chooses the part of a text that shows best why it was found, and what to mark in it.

Words are compared as the index compares them: stemmed and folded, characters in pairs where a
script has no spaces.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from quire.text.language import detect
from quire.text.words import fold, is_run, stem, stemmed, words_of

_LONGEST_TEXT = 20_000  # characters looked through
_WORD = re.compile(r"[^\W_]+")
_SPACE = re.compile(r"\s")


class _Hit(NamedTuple):
    """A place that matches, and which of the terms it is."""

    start: int
    stop: int
    term: int


def snippet(
    text: str, terms: Iterable[Sequence[str]], width: int = 240, languages: Sequence[str] = ()
) -> tuple[str, list[tuple[int, int]]]:
    """Return about `width` characters of a text and the ranges of them that match the terms.

    White space in it is made plain spaces, one for one. `languages` are those of the terms.
    """
    text = text[:_LONGEST_TEXT]
    hits = _hits(text, [list(forms) for forms in terms], languages)
    start, stop = _window(text, hits, width)
    shown = plain(text[start:stop])
    marks = [(h.start - start, h.stop - start) for h in hits if start <= h.start and h.stop <= stop]
    return shown, _merged(marks)


def plain(text: str) -> str:
    """Make all white space plain spaces, one for one."""
    return _SPACE.sub(" ", text)


def _hits(text: str, terms: list[list[str]], languages: Sequence[str]) -> list[_Hit]:
    keys: dict[str, int] = {}
    pairs: dict[str, int] = {}
    for number, forms in enumerate(terms):
        for form in forms:
            for word in form.rstrip("*").split():
                (pairs if is_run(word) else keys).setdefault(word, number)
    hits = [hit for pair, number in pairs.items() for hit in _occurrences(text, pair, number)]
    if keys:
        hits += _word_hits(text, keys, languages)
    return sorted(hits)


def _word_hits(text: str, keys: dict[str, int], languages: Sequence[str]) -> list[_Hit]:
    """Return the words of a text whose stem, or whose letters, are a term's."""
    wanted: dict[str, int] = {}
    for key, number in keys.items():
        wanted.setdefault(fold(key), number)
        wanted.setdefault(fold(stem([key], "")[0]), number)
    spoken = {"", detect(text), *languages}
    if text.isascii():
        known = _known(list(dict.fromkeys(words_of(text))), wanted, spoken)
        lowered = text.lower()
        return [hit for word, number in known.items() for hit in _whole(lowered, word, number)]
    places = list(_WORD.finditer(text))
    words = [place[0].lower() for place in places]
    known = _known(list(dict.fromkeys(words)), wanted, spoken)
    return [
        _Hit(place.start(), place.end(), known[word])
        for place, word in zip(places, words, strict=True)
        if word in known
    ]


def _known(words: list[str], wanted: dict[str, int], languages: set[str]) -> dict[str, int]:
    """Return the words that are wanted as they are or by a stem, and which term they are."""
    known: dict[str, int] = {}
    for forms in (words, *stemmed(words, languages)):
        plain = forms if "".join(forms).isascii() else map(fold, forms)
        found = [(word, form) for word, form in zip(words, plain, strict=True) if form in wanted]
        for word, form in found:
            known.setdefault(word, wanted[form])
    return known


def _whole(text: str, word: str, number: int) -> Iterator[_Hit]:
    """Yield where a word stands by itself."""
    at = text.find(word)
    while at >= 0:
        stop = at + len(word)
        # One character, or none at either end of the text.
        if not (text[max(0, at - 1) : at].isalnum() or text[stop : stop + 1].isalnum()):
            yield _Hit(at, stop, number)
        at = text.find(word, stop)


def _occurrences(text: str, part: str, number: int) -> list[_Hit]:
    # Signs above Thai letters are not in the index, and one letter is there without its sign.
    letters = [re.escape(char).replace("\u0e32", "[\u0e32\u0e33]") for char in part]
    pattern = "[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]*".join(letters)
    return [_Hit(p.start(), p.end(), number) for p in re.finditer(pattern, text)]


def _window(text: str, hits: list[_Hit], width: int) -> tuple[int, int]:
    """Return the stretch with the most different terms, then the most matches, then the first."""
    if len(text) <= width:
        return 0, len(text)
    best, score = 0, (0, 0)
    last = 0
    for first, hit in enumerate(hits):
        while last < len(hits) and hits[last].stop - hit.start <= width:
            last += 1
        inside = hits[first:last]
        worth = (len({one.term for one in inside}), len(inside))
        if worth > score:
            end = inside[-1].stop
            best, score = max(0, hit.start - (width - (end - hit.start)) // 2), worth
    start = min(best, len(text) - width)
    return _word_start(text, start), _word_stop(text, start + width)


def _word_start(text: str, at: int) -> int:
    """Return the beginning of a word near `at`, so that none is cut."""
    for place in range(at, max(0, at - 16), -1):
        if text[place - 1].isspace():
            return place
    return at if at > 16 else 0


def _word_stop(text: str, at: int) -> int:
    for place in range(at, min(len(text), at + 16)):
        if text[place].isspace():
            return place
    return at if at + 16 < len(text) else len(text)


def _merged(marks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges that neither touch nor overlap."""
    merged: list[tuple[int, int]] = []
    for start, stop in marks:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged
