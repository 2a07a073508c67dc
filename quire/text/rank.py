"""Scores pages: by the words of chunks, first lines and documents (BM25), and by meaning (vectors).

A page scores by its best chunk and its first lines; a document by its name and its words, each
counted once a page. Both are divided by the best score among the candidates and added, so that the
right page of the right document comes first. Vectors are added with a weight that grows as words
find less: they are poor at names, numbers and codes, and good at paraphrases. Where words find
everything, vectors order the pages after the best one by words, which stays first.

The weights are round and from flat regions; `benchmarks.ingest.reports` and
`benchmarks.ingest.passages` measure them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from quire.text import fields
from quire.text.words import analyse, is_spaceless, split_words

#: Weights of the fields: first lines beside the best chunk; a name beside the words of a document;
#: the document beside the page.
HEADS, NAME, DOCUMENT = 0.5, 1.5, 1.0
#: What is left of a word's weight on the pages of a document whose name has it: its pages that
#: repeat the name are no better than the others.
NAMED = 0.25
#: Of vectors, if words find everything, and if they find nothing. The weight falls between these
#: two shares of the query's words in the best chunks, and with the number of terms found: three are
#: no accident. The first is of what a page lacks to the best one by words: so that one stays first.
_MIN_VECTOR, _MAX_VECTOR = 0.5, 12.0
_LOW_COVERAGE, _HIGH_COVERAGE = 0.5, 0.8
_WEIGHT_BY_TERMS = (1.0, 1.0, 0.5)
#: Texts whose cosine is less are not returned for it alone, and none is if the best one is below
#: the second limit: of 38 paraphrases the worst had 0.206 there, of 8 nonsense queries half less.
MIN_COSINE, MIN_BEST_COSINE = 0.1, 0.2

_K1, _B, _B_HEADS, _B_NAME = 1.2, 0.75, 0.5, 0.3


class Weights(NamedTuple):
    """What each term of a query is worth in some collection of texts."""

    by_term: tuple[float, ...]

    @classmethod
    def of(
        cls, frequencies: Sequence[int], total: int, factors: Sequence[float] | None = None
    ) -> "Weights":
        """Weigh terms by the number of texts, of `total`, that have them (inverse frequency)."""
        factors = factors or [1.0] * len(frequencies)
        return cls(
            tuple(
                factor * math.log(1 + (total - n + 0.5) / (n + 0.5)) if n else 0.0
                for factor, n in zip(factors, (min(f, total) for f in frequencies), strict=True)
            )
        )

    def mean(self, other: "Weights") -> "Weights":
        """Return the mean of two weights of each term."""
        pairs = zip(self.by_term, other.by_term, strict=True)
        return Weights(tuple((one + two) / 2 for one, two in pairs))


class Counts(NamedTuple):
    """How often a text has each term, and its length in words."""

    length: int
    times: tuple[int, ...]


class TermCounter:
    """Counts terms in texts; each different word is analysed once."""

    def __init__(self, forms: Sequence[Sequence[str]]) -> None:
        self._size = len(forms)
        self._singles: dict[str, list[int]] = {}
        self._others: list[tuple[int, str]] = []  # phrases and prefixes
        for number, some in enumerate(forms):
            for form in some:
                if " " in form or form.endswith("*"):
                    self._others.append((number, form))
                else:
                    self._singles.setdefault(form, []).append(number)
        self._known: dict[str, dict[str, tuple[str, Sequence[int]]]] = {}

    def in_text(self, text: str, language: str) -> Counts:
        """Count the terms in a text."""
        known = self._known.setdefault(language, {})
        found = split_words(text)
        if fresh := [word for word in set(found) if word not in known]:
            self._learn(known, fresh, language)
        looked_up = [known[word] for word in found]
        if self._others or not text.isascii():
            return self.in_entries(" ".join([entry for entry, _ in looked_up]))
        times = [0] * self._size
        for _, numbers in looked_up:
            for number in numbers:
                times[number] += 1
        return Counts(len(found), tuple(times))

    def _learn(
        self, known: dict[str, tuple[str, Sequence[int]]], fresh: list[str], language: str
    ) -> None:
        plain = [word for word in fresh if not is_spaceless(word)]
        for word, entry in zip(plain, analyse(plain, language), strict=True):
            known[word] = entry, self._singles.get(entry, ())
        for word in fresh:
            if word not in known:
                known[word] = " ".join(analyse([word], language)), ()

    def in_entries(self, entries: str) -> Counts:
        """Count the terms in an analysed text: its entries, separated by spaces."""
        times = [0] * self._size
        found = entries.split()
        for entry in found:
            for number in self._singles.get(entry, ()):
                times[number] += 1
        if self._others:
            # Two spaces between entries: neighbouring phrases must not share one.
            padded = f" {entries.replace(' ', '  ')} "
            for number, form in self._others:
                looked = f" {form[:-1]}" if form.endswith("*") else f" {form.replace(' ', '  ')} "
                times[number] += padded.count(looked)
        return Counts(len(found), tuple(times))


def bm25(
    texts: Sequence[Counts], weights: Weights, *, b: float = _B, average: float | None = None
) -> list[tuple[float, ...]]:
    """Return what each term contributes to the BM25 score of each text."""
    average = average or sum(text.length for text in texts) / max(1, len(texts)) or 1.0
    found = []
    for text in texts:
        norm = _K1 * (1 - b + b * text.length / average)
        found.append(
            tuple(
                weight * times * (_K1 + 1) / (times + norm) if times else 0.0
                for weight, times in zip(weights.by_term, text.times, strict=True)
            )
        )
    return found


def bm25_of_heads(texts: Sequence[Counts], weights: Weights) -> list[tuple[float, ...]]:
    """Return what each term contributes to the score of first lines."""
    return bm25(texts, weights, b=_B_HEADS)


def discount(by_term: tuple[float, ...], name: Sequence[float]) -> tuple[float, ...]:
    """Reduce what the terms of a document's name contribute to a page of it."""
    if not any(name):
        return by_term
    return tuple(
        value * NAMED if named else value for value, named in zip(by_term, name, strict=False)
    )


class DocumentScore(NamedTuple):
    """What each term contributes to the score of a document: by its name, and by its pages."""

    name: tuple[float, ...]
    text: tuple[float, ...]

    @property
    def total(self) -> float:
        """The score."""
        return NAME * sum(self.name) + sum(self.text)


#: Documents that have each entry of the index of documents.
Matching = Mapping[str, Sequence[int]]


def score_documents(
    found: Matching,
    terms: Sequence[Sequence[str]],
    factors: Sequence[float],
    lengths: Mapping[int, tuple[int, int]],
    total: int,
    average: float,
) -> dict[int, DocumentScore]:
    """Score documents by the entries that they have.

    `lengths` has the words of the name and of the pages of each document; `total` and `average` are
    the number of documents and the average length of their pages.
    """
    size = len(terms)
    names: dict[int, list[float]] = {}
    texts: dict[int, list[float]] = {}
    average_name = sum(each for each, _ in lengths.values()) / max(1, len(lengths)) or 1.0
    for number, forms in enumerate(terms):
        named = _best_steps(found, forms, (fields.NAME,), lengths)
        weight = Weights.of([len(named)], total, [factors[number]]).by_term[0]
        for document in named:
            norm = _K1 * (1 - _B_NAME + _B_NAME * lengths[document][0] / average_name)
            names.setdefault(document, [0.0] * size)[number] = weight * (_K1 + 1) / (1 + norm)
        stepped = _best_steps(found, forms, ("",), lengths)
        weight = Weights.of([len(stepped)], total, [factors[number]]).by_term[0]
        for document, times in stepped.items():
            norm = _K1 * (1 - _B + _B * lengths[document][1] / (average or 1.0))
            share = times * (_K1 + 1) / (times + norm)
            texts.setdefault(document, [0.0] * size)[number] = weight * share
    none = (0.0,) * size
    return {
        each: DocumentScore(tuple(names.get(each, none)), tuple(texts.get(each, none)))
        for each in names.keys() | texts.keys()
    }


def _best_steps(
    found: Matching, forms: Sequence[str], marks: Sequence[str], known: Mapping[int, object]
) -> dict[int, int]:
    """Return for each document the number of pages that its best form stands for."""
    times: dict[int, int] = {}
    for form in forms:
        for mark in marks:
            entries = fields.text_entries(form) if not mark else [mark + form]
            for entry, pages in zip(entries, fields.PAGES_OF_STEP, strict=False):
                for document in found.get(entry, ()):
                    if document in known and times.get(document, 0) < pages:
                        times[document] = pages
    return times


def coverage(best: Iterable[Counts], size: int) -> tuple[int, float]:
    """Return how many of the terms the best of some texts has, and which share that is."""
    most = max((sum(map(bool, text.times)) for text in best), default=0)
    return most, most / size if size else 0.0


def shortfall(terms: int, share: float) -> float:
    """Return, from 0 to 1, how far the best texts fall short of the query, by their coverage."""
    if terms >= len(_WEIGHT_BY_TERMS):
        return 0.0
    missing = (_HIGH_COVERAGE - share) / (_HIGH_COVERAGE - _LOW_COVERAGE)
    return _WEIGHT_BY_TERMS[terms] * min(1.0, max(0.0, missing))


def vector_weight(missing: float, words: float, document: float = 1.0) -> float:
    """Return the weight of a page's vector; `words` and `document` are scaled scores by words.

    Between documents, words decide: vectors are poor at names.
    """
    return _MIN_VECTOR * (1 - words) * document * (1 - missing) + _MAX_VECTOR * missing


def scaled(values: Sequence[float]) -> list[float]:
    """Divide scores by the best one."""
    top = max(values, default=0.0)
    return [value / top if top > 0 else 0.0 for value in values]


def spread(values: Sequence[float]) -> list[float]:
    """Scale scores so that the lowest is 0 and the best 1."""
    low, top = min(values, default=0.0), max(values, default=0.0)
    return [(value - low) / (top - low) if top > low else 1.0 for value in values]


def scale_scores(scores: Sequence[float], best: float) -> list[float]:
    """Scale scores so that the first is `best`, from 0 to 1, and none exceeds the one before it.

    Scores cannot be compared between queries: they are relative to the best candidates.
    """
    top = scores[0] if scores else 0.0
    found, last = [], min(1.0, max(0.0, best))
    for score in scores:
        # Divided first: a tiny score must not underflow.
        last = min(last, best * (score / top)) if top > 0 else last
        found.append(max(0.0, last))
    return found
