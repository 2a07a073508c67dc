"""Merges the results of full-text search and vector search into one ranking (hybrid search).

Full-text search wins where it can: if a text contains everything that was asked for, vectors hardly
move it, because they are poor at names, numbers and codes. The fewer of the query's words any text
contains, the more the query is a paraphrase, and the more vectors count. Reciprocal rank fusion,
the usual method, lets vectors push good matches down: measured, it is worse than full-text alone.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quire.model.search import TermCounts
from quire.text.language import detect
from quire.text.words import bigrams, fold, is_spaceless, split_words, stem, stem_all

CANDIDATES = 50  # results of each search to merge
COVERAGE_TEXTS = 5  # best full-text results to measure the coverage of

#: Chosen on the questions of `benchmarks.ingest.passages`, asked of its passages among 2,200
#: chunks of real pages, next to queries made of words of those pages and of words of no page.
_MAX_VECTOR_WEIGHT = 3.0  # if full-text search finds nothing
_MIN_VECTOR_WEIGHT = 0.02  # if it finds everything: enough to break ties
_LOW_COVERAGE, _HIGH_COVERAGE = 0.5, 0.8  # the weight falls between these
_WEIGHT_BY_TERMS = (1.0, 1.0, 0.5)  # and with the number of terms found; three are no accident

_K1, _B = 1.2, 0.75

ScoredIds = Sequence[tuple[int, float]]
Terms = Sequence[Sequence[str]]


class Coverage(NamedTuple):
    """How many terms of the query a text contains."""

    terms: int
    asked: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.terms / self.asked if self.asked else 0.0

    @property
    def shortfall(self) -> float:
        """From 0 to 1: how far the best full-text results fall short of the query."""
        if self.terms >= len(_WEIGHT_BY_TERMS):
            return 0.0
        missing = (_HIGH_COVERAGE - self.share) / (_HIGH_COVERAGE - _LOW_COVERAGE)
        return _WEIGHT_BY_TERMS[self.terms] * min(1.0, max(0.0, missing))


def fuse(
    bm25: ScoredIds, vector: ScoredIds, coverage: Coverage | None = None
) -> list[tuple[int, float]]:
    """Merge two rankings, best first; higher scores are better in both.

    `coverage` is that of the best full-text results (see `measure_coverage`); without it full-text
    results go first. Both rankings should have `CANDIDATES` results. Scores can only be compared
    within one result.
    """
    shortfall = coverage.shortfall if coverage else 0.0
    weight = _MIN_VECTOR_WEIGHT + (_MAX_VECTOR_WEIGHT - _MIN_VECTOR_WEIGHT) * shortfall
    top = max((score for _, score in bm25), default=0.0)
    found = {number: score / top if top > 0 else 0.0 for number, score in bm25}
    low = min((score for _, score in vector), default=0.0)
    span = max((score for _, score in vector), default=0.0) - low
    for number, score in vector:
        share = (score - low) / span if span > 0 else 1.0
        found[number] = found.get(number, 0.0) + weight * share
    # Break ties by id: the order must not depend on the database.
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))


def scale_scores(found: ScoredIds, best: float) -> list[tuple[int, float]]:
    """Scale scores so that the first is `best`, from 0 to 1, and none exceeds the one before it.

    Fused scores cannot be compared between queries: if no text contains the words, the weight of
    the vectors alone exceeds every score of a good result.
    """
    top = found[0][1] if found else 0.0
    scaled, last = [], min(1.0, max(0.0, best))
    for number, score in found:
        # Divided first: a tiny score must not underflow.
        last = min(last, best * (score / top)) if top > 0 else last
        scaled.append((number, max(0.0, last)))
    return scaled


def measure_coverage(texts: Iterable[str], terms: Terms, languages: Sequence[str] = ()) -> Coverage:
    """Return the highest coverage of any of the texts; `languages` are those of the terms."""
    most = 0
    for text in texts:
        entries = _entries(text, languages)
        found = sum(any(_matches(form, entries) for form in forms) for forms in terms)
        most = max(most, found)
    return Coverage(most, len(terms))


def bm25_scores(
    texts: Sequence[TermCounts],
    terms: Terms,
    frequencies: Sequence[int],
    total: int,
) -> list[float]:
    """Return the BM25 score of each text, given by its word counts.

    `frequencies` has the number of texts, of `total`, that contain each term.
    """
    average = sum(text.length for text in texts) / max(1, len(texts)) or 1.0
    idf = [
        math.log(1 + (total - n + 0.5) / (n + 0.5)) for n in (min(f, total) for f in frequencies)
    ]
    found = []
    for text in texts:
        norm = _K1 * (1 - _B + _B * text.length / average)
        score = 0.0
        for weight, forms in zip(idf, terms, strict=True):
            times = max(map(text.times, forms), default=0)
            score += weight * times * (_K1 + 1) / (times + norm)
        found.append(score)
    return found


def _entries(text: str, languages: Sequence[str]) -> set[str]:
    """Return the words of a text in all forms that a term may have."""
    words = split_words(text)
    forms = [words, *stem_all(words, {"", detect(text), *languages})]
    if text.isascii():
        return set().union(*forms)
    found = {fold(word) for some in forms for word in some}
    for word in filter(is_spaceless, words):
        found.update(bigrams(word), word)
    return found


def _matches(form: str, entries: set[str]) -> bool:
    if form.endswith("*"):
        return any(entry.startswith(form[:-1]) for entry in entries)
    return all(
        word in entries or fold(word) in entries or fold(stem([word], "")[0]) in entries
        for word in form.split()
    )
