"""Joins what was found by words with what was found by vectors.

Words win where they can: if some text has all that was asked for, it is hardly moved by vectors,
which are poor at names, numbers and codes. The fewer of the words any text has, the more the
question was put in words of its own, and the more vectors count. Summing ranks, as is usual,
would let the vectors push good matches of words down; measured, that falls below words alone.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quire.model.search import TermCounts
from quire.text.language import detect
from quire.text.words import fold, grams, is_run, stem, stemmed, words_of

DEPTH = 50  # results of each kind that are worth joining
COVERED_TEXTS = 5  # best texts by words that `covered` should look at

#: Chosen on the questions of `benchmarks.ingest.passages`, asked of its passages among 2,200
#: pieces of real pages, beside questions made of words of those pages and of words of no page.
_MOST = 3.0  # weight of vectors where words find nothing
_LEAST = 0.02  # and where they find what was asked for: enough to part equals
_POOR, _GOOD = 0.5, 0.8  # shares of the words between which the weight falls
_BY_COUNT = (1.0, 1.0, 0.5)  # and how it falls with their number; three words are no accident

_K1, _B = 1.2, 0.75

Scored = Sequence[tuple[int, float]]
Terms = Sequence[Sequence[str]]


class Covered(NamedTuple):
    """How many of the terms asked for one text has."""

    terms: int
    asked: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.terms / self.asked if self.asked else 0.0


def fuse(bm25: Scored, vector: Scored, covered: Covered | None = None) -> list[tuple[int, float]]:
    """Join two rankings, best first; in both, more is better.

    `covered` is what `covered()` says of the best texts by words; without it words go first. Both
    rankings should be `DEPTH` deep; scores are comparable within one answer only.
    """
    weight = _LEAST + (_MOST - _LEAST) * (_lack(covered) if covered else 0.0)
    top = max((score for _, score in bm25), default=0.0)
    found = {number: score / top if top > 0 else 0.0 for number, score in bm25}
    low = min((score for _, score in vector), default=0.0)
    span = max((score for _, score in vector), default=0.0) - low
    for number, score in vector:
        share = (score - low) / span if span > 0 else 1.0
        found[number] = found.get(number, 0.0) + weight * share
    # Equal scores keep one order whatever the databases answered.
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))


def graded(found: Scored, best: float) -> list[tuple[int, float]]:
    """Scale scores so that the first has `best`, from 0 to 1, and none is above the one before it.

    What two rankings are joined by says nothing across answers: where no text has the words, the
    weight of the vectors alone is above all that a good answer ever gets.
    """
    top = found[0][1] if found else 0.0
    graded, last = [], min(1.0, max(0.0, best))
    for number, score in found:
        last = min(last, best * score / top) if top > 0 else last
        graded.append((number, max(0.0, last)))
    return graded


def covered(texts: Iterable[str], terms: Terms, languages: Sequence[str] = ()) -> Covered:
    """Return the most of the terms that one of the texts has; `languages` as for the terms."""
    found = max((_number(_entries(text, languages), terms) for text in texts), default=0)
    return Covered(found, len(terms))


def bm25(
    texts: Sequence[str], terms: Terms, frequencies: Sequence[int], total: int, average: float = 0.0
) -> list[float]:
    """Score texts, as `words.indexed_simple` gives them, for terms, in the order of the texts.

    `frequencies` says for each term how many of the `total` texts have it; `average` is their mean
    number of words, by default that of the texts given.
    """
    return weighed([_Text(text.split()) for text in texts], terms, frequencies, total, average)


def weighed(
    texts: Sequence[TermCounts],
    terms: Terms,
    frequencies: Sequence[int],
    total: int,
    average: float = 0.0,
) -> list[float]:
    """Score texts as `bm25` does, by what is known of their words."""
    average = average or sum(text.length for text in texts) / max(1, len(texts)) or 1.0
    rare = [
        math.log(1 + (total - n + 0.5) / (n + 0.5)) for n in (min(f, total) for f in frequencies)
    ]
    found = []
    for text in texts:
        norm = _K1 * (1 - _B + _B * text.length / average)
        score = 0.0
        for rarity, forms in zip(rare, terms, strict=True):
            times = max(map(text.times, forms), default=0)
            score += rarity * times * (_K1 + 1) / (times + norm)
        found.append(score)
    return found


class _Text:
    """A text as a list of words."""

    def __init__(self, words: list[str]) -> None:
        self.length = len(words)
        self._words, self._counts = words, Counter(words)

    def times(self, form: str) -> int:
        """Count a word, a prefix or a phrase."""
        words, counts = self._words, self._counts
        if form.endswith("*"):
            return sum(n for word, n in counts.items() if word.startswith(form[:-1]))
        first, *rest = form.split()
        if not rest or not counts[first]:
            return counts[first]
        size = 1 + len(rest)
        places = (at for at, word in enumerate(words) if word == first)
        return sum(words[at + 1 : at + size] == rest for at in places)


def _entries(text: str, languages: Sequence[str]) -> set[str]:
    """Return every form of a text's words that a term may be given in."""
    words = words_of(text)
    forms = [words, *stemmed(words, {"", detect(text), *languages})]
    if text.isascii():
        return set().union(*forms)
    found = {fold(word) for some in forms for word in some}
    for word in filter(is_run, words):
        found.update(grams(word), word)
    return found


def _number(entries: set[str], terms: Terms) -> int:
    return sum(any(_within(form, entries) for form in forms) for forms in terms)


def _lack(covered: Covered) -> float:
    """Return from 0 to 1 how far words fall short of what was asked for."""
    if covered.terms >= len(_BY_COUNT):
        return 0.0
    lack = (_GOOD - covered.share) / (_GOOD - _POOR)
    return _BY_COUNT[covered.terms] * min(1.0, max(0.0, lack))


def _within(form: str, entries: set[str]) -> bool:
    if form.endswith("*"):
        return any(entry.startswith(form[:-1]) for entry in entries)
    return all(
        word in entries or fold(word) in entries or fold(stem([word], "")[0]) in entries
        for word in form.split()
    )
