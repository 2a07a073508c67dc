"""Words and vectors together: never worse than words alone, better where words fail."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.ingest.passages import ALIKE, PARAPHRASES, passages, recall
from quire.text.embed.embedder import open_embedder
from quire.text.rank import (
    CANDIDATES,
    COVERAGE_TEXTS,
    Coverage,
    bm25_scores,
    fuse,
    measure_coverage,
    scale_scores,
)
from quire.text.words import fts5_query, query_terms, tsvector_input


class WordList:
    """The word counts of a text that is a list of words."""

    def __init__(self, words: list[str]) -> None:
        self.length = len(words)
        self._words, self._counts = words, Counter(words)

    def times(self, form: str) -> int:
        """Count the occurrences of a word, a prefix or a phrase."""
        words, counts = self._words, self._counts
        if form.endswith("*"):
            return sum(n for word, n in counts.items() if word.startswith(form[:-1]))
        first, *rest = form.split()
        if not rest or not counts[first]:
            return counts[first]
        size = 1 + len(rest)
        starts = (at for at, word in enumerate(words) if word == first)
        return sum(words[at + 1 : at + size] == rest for at in starts)


def bm25(
    texts: Sequence[str], terms: Sequence[Sequence[str]], frequencies: Sequence[int], total: int
) -> list[float]:
    """Return the BM25 score of each text, given as `words.tsvector_input` returns it."""
    return bm25_scores([WordList(text.split()) for text in texts], terms, frequencies, total)


class Library:
    """The passages in FTS5 and as vectors."""

    def __init__(self) -> None:
        self.texts = passages()
        self.embedder = open_embedder("wordllama")
        self.vectors = self.embedder.embed(self.texts)
        self.base = sqlite3.connect(":memory:")
        tokenize = "porter unicode61 remove_diacritics 2"
        self.base.execute(f"CREATE VIRTUAL TABLE t USING fts5(text, tokenize = '{tokenize}')")
        rows = enumerate(self.texts)
        self.base.executemany("INSERT INTO t (rowid, text) VALUES (?, ?)", rows)

    def scored_words(self, query: str) -> list[tuple[int, float]]:
        match = fts5_query(query_terms(query, ["en"]))
        sql = "SELECT rowid, -bm25(t) FROM t WHERE t MATCH ? ORDER BY 2 DESC LIMIT ?"
        return self.base.execute(sql, [match, CANDIDATES]).fetchall()

    def scored_vectors(self, query: str) -> list[tuple[int, float]]:
        scores = self.vectors @ self.embedder.embed([query])[0]
        return [(int(n), float(scores[n])) for n in np.argsort(-scores)[:CANDIDATES]]

    def by_words(self, query: str) -> Sequence[int]:
        return [number for number, _ in self.scored_words(query)]

    def by_vectors(self, query: str) -> Sequence[int]:
        return [number for number, _ in self.scored_vectors(query)]

    def by_both(self, query: str) -> Sequence[int]:
        found = self.scored_words(query)
        best = [self.texts[number] for number, _ in found[:COVERAGE_TEXTS]]
        share = measure_coverage(best, query_terms(query, ["en"]))
        return [number for number, _ in fuse(found, self.scored_vectors(query), share)]


@pytest.fixture(scope="module")
def library():
    found = Library()
    yield found
    found.base.close()


def test_the_set_is_large_enough_and_every_question_has_its_passage(library):
    assert len(library.texts) == len(set(library.texts)) >= 120
    assert len(ALIKE) >= 30 and len(PARAPHRASES) >= 20
    assert all(" - " not in text and "##" not in text for text in library.texts)
    assert all(asked.passage < len(library.texts) for asked in ALIKE + PARAPHRASES)


def test_fusion_is_never_below_words_alone_and_better_on_paraphrases(library):
    for questions in (ALIKE, PARAPHRASES):
        words, both = recall(library.by_words, questions), recall(library.by_both, questions)
        assert both.first >= words.first and both.five >= words.five
    assert recall(library.by_both, ALIKE).first >= 0.95
    words = recall(library.by_words, PARAPHRASES)
    assert recall(library.by_both, PARAPHRASES).five >= words.five + 0.3


def test_our_bm25_ranks_as_fts5_does(library):
    analysed = [tsvector_input(text, "en") for text in library.texts]

    def ranking(query: str) -> Sequence[int]:
        terms = query_terms(query, ["en"], simple=True)
        counts = [sum(forms[0] in text.split() for text in analysed) for forms in terms]
        scores = bm25(analysed, terms, counts, len(analysed))
        return sorted(range(len(scores)), key=lambda n: -scores[n])

    assert recall(ranking, ALIKE) == recall(library.by_words, ALIKE)


def test_a_text_with_all_words_stays_first():
    words, vectors = [(1, 9.0), (2, 8.0)], [(3, 0.9), (2, 0.8), (1, 0.1)]
    assert [n for n, _ in fuse(words, vectors, Coverage(3, 3))] == [1, 2, 3]
    assert next(n for n, _ in fuse(words, vectors, Coverage(0, 3))) in (2, 3)


def test_either_ranking_may_be_empty():
    assert fuse([], [], Coverage(0, 0)) == []
    assert [n for n, _ in fuse([(4, 2.0), (5, 1.0)], [], Coverage(0, 1))] == [4, 5]
    assert [n for n, _ in fuse([], [(4, 0.2), (5, 0.1)], Coverage(0, 1))] == [4, 5]
    assert [n for n, _ in fuse([], [(5, 0.2), (4, 0.2)], Coverage(0, 1))] == [4, 5]
    assert [n for n, _ in fuse([(4, 0.0)], [], Coverage(1, 1))] == [4]


@pytest.mark.parametrize(
    ("text", "query", "languages", "expected"),
    [
        ("Two houses flooded", "flooding of a house", ["en"], Coverage(2, 2)),
        ("Die Häuser am Fluss", "Haus Wald", ["de"], Coverage(1, 2)),
        ("机器学习可以预测洪水", "机器学习", ["zh"], Coverage(1, 1)),
        ("机器学习可以预测洪水", "水", ["zh"], Coverage(1, 1)),
        ("nothing", "", ["en"], Coverage(0, 0)),
    ],
)
def test_coverage_counts_words_in_every_form(text, query, languages, expected):
    assert measure_coverage(["other", text], query_terms(query, languages), languages) == expected


def test_bm25_knows_phrases_prefixes_and_rare_words():
    texts = ["river bank river", "bank of a river", "water fall", "x"]
    assert bm25(texts, [["river bank"]], [1], 4)[1:] == [0, 0, 0]
    assert bm25(texts, [["wat*"]], [1], 4)[2] > 0
    rare, frequent = bm25(["a b"], [["a"]], [1], 100)[0], bm25(["a b"], [["b"]], [90], 100)[0]
    assert rare > frequent > 0
    assert bm25([], [["a"]], [0], 0) == []
    assert bm25(["", "a"], [["a"], ["b", "c"]], [5, 9], 3)[0] == 0


@given(
    st.lists(st.floats(0, 1e6), min_size=1).map(lambda scores: sorted(scores, reverse=True)),
    st.floats(0, 1),
)
def test_grades_keep_the_order_and_the_first_has_the_best(scores: list[float], best: float):
    found = scale_scores(list(enumerate(scores)), best)
    assert [number for number, _ in found] == list(range(len(scores)))
    assert found[0][1] == pytest.approx(best)
    grades = [grade for _, grade in found]
    assert grades == sorted(grades, reverse=True)
    assert min(grades) >= 0
    assert scale_scores([], best) == []


def test_without_coverage_words_go_first():
    words, vectors = [(1, 9.0), (2, 1.0)], [(3, 0.9), (2, 0.8), (1, 0.1)]
    assert [n for n, _ in fuse(words, vectors)] == [1, 2, 3]


def test_a_score_too_small_to_multiply_still_scales_to_the_best():
    assert scale_scores([(1, 5e-324)], 0.5) == [(1, 0.5)]
