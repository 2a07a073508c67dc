"""Chooses the part of a text that best shows why it was found, and the ranges to highlight.

Words are compared as in the index: stemmed and folded, or as bigrams.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from quire.text.language import detect
from quire.text.words import fold, is_spaceless, split_words, stem, stem_all

_MAX_CHARS = 20_000  # the rest of a text is ignored
_WORD = re.compile(r"[^\W_]+")
_SPACE = re.compile(r"\s")


class _Match(NamedTuple):
    start: int
    stop: int
    term: int  # index


def snippet(
    text: str, terms: Iterable[Sequence[str]], width: int = 240, languages: Sequence[str] = ()
) -> tuple[str, list[tuple[int, int]]]:
    """Return about `width` characters of a text, and the ranges in them that match the terms.

    Each white space character becomes a space. `languages` are those of the terms.
    """
    text = text[:_MAX_CHARS]
    matches = _find_matches(text, [list(forms) for forms in terms], languages)
    start, stop = _window(text, matches, width)
    shown = flatten_whitespace(text[start:stop])
    marks = [
        (h.start - start, h.stop - start) for h in matches if start <= h.start and h.stop <= stop
    ]
    return shown, _merge_ranges(marks)


def flatten_whitespace(text: str) -> str:
    """Replace each white space character by a space."""
    return _SPACE.sub(" ", text)


def _find_matches(text: str, terms: list[list[str]], languages: Sequence[str]) -> list[_Match]:
    keys: dict[str, int] = {}
    pairs: dict[str, int] = {}
    for number, forms in enumerate(terms):
        for form in forms:
            for word in form.rstrip("*").split():
                (pairs if is_spaceless(word) else keys).setdefault(word, number)
    matches: list[_Match] = []
    for pair, number in pairs.items():
        # The index has no Thai combining marks, and SARA AM (ำ) is there as its decomposed vowel.
        letters = [re.escape(char).replace("\u0e32", "[\u0e32\u0e33]") for char in pair]
        pattern = "[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]*".join(letters)
        matches += [_Match(*found.span(), number) for found in re.finditer(pattern, text)]
    if keys:
        matches += _find_words(text, keys, languages)
    return sorted(matches)


def _find_words(text: str, keys: dict[str, int], languages: Sequence[str]) -> list[_Match]:
    """Return the words of a text that equal a term as they are or by a stem."""
    wanted: dict[str, int] = {}
    for key, number in keys.items():
        wanted.setdefault(fold(key), number)
        wanted.setdefault(fold(stem([key], "")[0]), number)
    tried = {"", detect(text), *languages}
    if text.isascii():
        known = _wanted_words(list(dict.fromkeys(split_words(text))), wanted, tried)
        lowered = text.lower()
        return [
            match
            for word, number in known.items()
            for match in _find_whole_word(lowered, word, number)
        ]
    places = list(_WORD.finditer(text))
    words = [place[0].lower() for place in places]
    known = _wanted_words(list(dict.fromkeys(words)), wanted, tried)
    return [
        _Match(place.start(), place.end(), known[word])
        for place, word in zip(places, words, strict=True)
        if word in known
    ]


def _wanted_words(words: list[str], wanted: dict[str, int], languages: set[str]) -> dict[str, int]:
    """Return the words that equal a term as they are or by a stem, with the term's index."""
    known: dict[str, int] = {}
    for forms in (words, *stem_all(words, languages)):
        folded = forms if "".join(forms).isascii() else map(fold, forms)
        for word, form in zip(words, folded, strict=True):
            if form in wanted:
                known.setdefault(word, wanted[form])
    return known


def _find_whole_word(text: str, word: str, number: int) -> Iterator[_Match]:
    at = text.find(word)
    while at >= 0:
        stop = at + len(word)
        # The neighbours are one character each, or empty at either end of the text.
        if not (text[max(0, at - 1) : at].isalnum() or text[stop : stop + 1].isalnum()):
            yield _Match(at, stop, number)
        at = text.find(word, stop)


def _window(text: str, matches: list[_Match], width: int) -> tuple[int, int]:
    """Return the window with the most distinct terms, then the most matches, then the first."""
    if len(text) <= width:
        return 0, len(text)
    best, score = 0, (0, 0)
    last = 0
    for first, match in enumerate(matches):
        while last < len(matches) and matches[last].stop - match.start <= width:
            last += 1
        inside = matches[first:last]
        worth = (len({one.term for one in inside}), len(inside))
        if worth > score:
            end = inside[-1].stop
            best, score = max(0, match.start - (width - (end - match.start)) // 2), worth
    start = min(best, len(text) - width)
    return _word_start(text, start), _word_stop(text, start + width)


def _word_start(text: str, at: int) -> int:
    """Return the start of a word near `at`, so that no word is cut."""
    for place in range(at, max(0, at - 16), -1):
        if text[place - 1].isspace():
            return place
    return at if at > 16 else 0


def _word_stop(text: str, at: int) -> int:
    for place in range(at, min(len(text), at + 16)):
        if text[place].isspace():
            return place
    return at if at + 16 < len(text) else len(text)


def _merge_ranges(marks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, stop in marks:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged
