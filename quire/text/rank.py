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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from quire.text import fields
from quire.text.words import analyse, is_spaceless, split_words

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]
    Scores = npt.NDArray[np.float64]

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


#: Words of texts that this process has analysed, by language: they make up most of any text.
_analysed: dict[str, dict[str, str]] = {}
_MAX_ANALYSED = 50_000


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

    def in_text(self, text: str, language: str) -> Counts:
        """Count the terms in a text."""
        entries = _entries(split_words(text), language)
        if self._others or not text.isascii():
            return self.in_entries(" ".join(entries))
        return self._counts(entries)

    def _counts(self, entries: Sequence[str]) -> Counts:
        singles, times = self._singles, [0] * self._size
        for entry in [each for each in entries if each in singles]:
            for number in singles[entry]:
                times[number] += 1
        return Counts(len(entries), tuple(times))

    def in_entries(self, entries: str) -> Counts:
        """Count the terms in an analysed text: its entries, separated by spaces."""
        found = self._counts(entries.split())
        if not self._others:
            return found
        times = list(found.times)
        # Two spaces between entries: neighbouring phrases must not share one.
        padded = f" {entries.replace(' ', '  ')} "
        for number, form in self._others:
            looked = f" {form[:-1]}" if form.endswith("*") else f" {form.replace(' ', '  ')} "
            times[number] += padded.count(looked)
        return Counts(found.length, tuple(times))


def _entries(found: Sequence[str], language: str) -> Sequence[str]:
    """Return the entry of each word; of a script without spaces, several, separated by spaces."""
    known = _analysed.get(language, {})
    entries = list(map(known.get, found))
    if None in entries:
        if len(known) > _MAX_ANALYSED:
            known = {}
        _analyse(set(found).difference(known), language, known)
        # Set last: a thread that found the older words keeps them.
        _analysed[language] = known
        entries = list(map(known.get, found))
    return cast(list[str], entries)


def _analyse(fresh: set[str], language: str, known: dict[str, str]) -> None:
    plain = [word for word in fresh if not is_spaceless(word)]
    known.update(zip(plain, analyse(plain, language), strict=True))
    known.update((word, " ".join(analyse([word], language))) for word in fresh.difference(plain))


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


class DocumentScores(Mapping[int, DocumentScore]):
    """The scores of documents by their ids; kept in arrays, as there may be thousands."""

    def __init__(self, ids: "Ids", names: "Scores", texts: "Scores") -> None:
        self._ids, self._names, self._texts = ids, names, texts
        self._at = {document: at for at, document in enumerate(ids.tolist())}

    @classmethod
    def none(cls, terms: int) -> "DocumentScores":
        """Return the scores of no documents."""
        import numpy as np

        return cls(np.empty(0, np.int64), np.empty((terms, 0)), np.empty((terms, 0)))

    def __getitem__(self, document: int) -> DocumentScore:
        """Return the score of a document."""
        at = self._at[document]
        return DocumentScore(tuple(self._names[:, at].tolist()), tuple(self._texts[:, at].tolist()))

    def __iter__(self) -> Iterator[int]:
        """Iterate over the ids."""
        return iter(self._at)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._at)

    def totals(self) -> dict[int, float]:
        """Return the total score of each document."""
        sums = NAME * self._names.sum(axis=0) + self._texts.sum(axis=0)
        return dict(zip(self._at, sums.tolist(), strict=True))

    def has_term(self, number: int) -> bool:
        """Tell whether some document has a term."""
        return bool(self._names[number].any() or self._texts[number].any())


#: Documents that have each entry of the index of documents.
Matching = Mapping[str, Sequence[int]]


def score_documents(
    found: Matching,
    terms: Sequence[Sequence[str]],
    factors: Sequence[float],
    lengths: "Ids",
    total: int,
    average: float,
) -> DocumentScores:
    """Score documents by the entries that they have.

    `lengths` has a row for each document, in order: its id, and the words of its name and of its
    pages. `total` and `average` are the number of documents and the average length of their pages.
    """
    import numpy as np

    ids, of_name, of_pages = lengths[:, 0], lengths[:, 1], lengths[:, 2]
    names, texts = np.zeros((len(terms), len(ids))), np.zeros((len(terms), len(ids)))
    norm_name = _K1 * (1 - _B_NAME + _B_NAME * of_name / (of_name.mean() if len(ids) else 1.0))
    norm_text = _K1 * (1 - _B + _B * of_pages / (average or 1.0))
    for number, forms in enumerate(terms):
        for scores, marks, norm in ((names, fields.NAME, norm_name), (texts, "", norm_text)):
            times = _best_steps(found, forms, marks, ids)
            count = int(np.count_nonzero(times))
            weight = Weights.of([count], total, [factors[number]]).by_term[0]
            scores[number] = weight * times * (_K1 + 1) / (times + norm)
    there = np.flatnonzero((names + texts).any(axis=0))
    return DocumentScores(ids[there], names[:, there], texts[:, there])


def _best_steps(found: Matching, forms: Sequence[str], mark: str, ids: "Ids") -> "Ids":
    """Return for each document the number of pages that its best form stands for."""
    import numpy as np

    times = np.zeros(len(ids), np.int64)
    for form in forms:
        entries = [mark + form] if mark else fields.text_entries(form)
        for entry, pages in zip(entries, fields.PAGES_OF_STEP, strict=False):
            if some := found.get(entry):
                has = np.isin(ids, np.array(some, np.int64))
                times[has] = np.maximum(times[has], pages)
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
