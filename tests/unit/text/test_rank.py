"""Words and vectors together: never worse than words alone, better where words fail."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.ingest.passages import ALIKE, PARAPHRASES, passages, recall
from quire.text import rank
from quire.text.embed.embedder import open_embedder
from quire.text.query import Term, parse
from quire.text.rank import Counts, TermCounter, Weights, bm25, scale_scores, shortfall
from quire.text.words import fts5_query, query_terms, tsvector_input


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

    def by_fts5(self, query: str) -> Sequence[int]:
        match = fts5_query(query_terms(query, ["en"]))
        sql = "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT 50"
        return [number for (number,) in self.base.execute(sql, [match])]

    def scores(self, query: str) -> tuple[list[float], list[Counts], tuple[Term, ...]]:
        terms = parse(query, ["en"]).terms
        counter = TermCounter([term.forms for term in terms])
        counts = [counter.in_text(text, "en") for text in self.texts]
        frequencies = [sum(each.times[at] > 0 for each in counts) for at in range(len(terms))]
        weights = Weights.of(frequencies, len(self.texts))
        return [sum(each) for each in bm25(counts, weights)], counts, terms

    def by_words(self, query: str) -> Sequence[int]:
        scores, _, _ = self.scores(query)
        return sorted((n for n, score in enumerate(scores) if score), key=lambda n: -scores[n])

    def by_both(self, query: str) -> Sequence[int]:
        scores, counts, terms = self.scores(query)
        cosines = self.vectors @ self.embedder.embed([query])[0]
        near = rank.spread([max(0.0, float(each)) for each in cosines])
        best = max(counts, key=lambda each: sum(map(bool, each.times)))
        missing = shortfall(*rank.coverage([best], len(terms)))
        both = [
            one + rank.vector_weight(missing, one) * two
            for one, two in zip(rank.scaled(scores), near, strict=True)
        ]
        return [int(n) for n in np.argsort(-np.array(both), kind="stable")]


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


def test_hybrid_is_never_below_words_alone_and_better_on_paraphrases(library):
    for questions in (ALIKE, PARAPHRASES):
        words, both = recall(library.by_words, questions), recall(library.by_both, questions)
        assert both.first >= words.first and both.five >= words.five
    assert recall(library.by_both, ALIKE).first >= 0.95
    words = recall(library.by_words, PARAPHRASES)
    assert recall(library.by_both, PARAPHRASES).five >= words.five + 0.3


def test_our_bm25_ranks_as_fts5_does(library):
    assert recall(library.by_words, ALIKE) == recall(library.by_fts5, ALIKE)


def test_vectors_order_what_words_leave_open_and_decide_if_words_find_nothing():
    assert shortfall(3, 1.0) == shortfall(5, 0.1) == 0.0
    assert shortfall(0, 0.0) == 1.0
    assert 0 < shortfall(2, 0.5) <= shortfall(1, 0.5)
    assert rank.vector_weight(1.0, 1.0) > rank.DOCUMENT + 1.0
    assert rank.vector_weight(0.0, 0.0) == 0.5
    # Where words find everything, vectors do not tell documents apart.
    assert rank.vector_weight(0.0, 0.0, 0.0) == 0.0


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_best_page_by_words_stays_first_where_words_find_everything(words, document, near):
    assert words + rank.vector_weight(0.0, words, document) * near <= 1.0


@pytest.mark.parametrize(
    ("text", "query", "language", "expected"),
    [
        ("Two houses flooded", "flooding of a house", "en", (2, 1.0)),
        ("Die Häuser am Fluss", "Haus Wald", "de", (1, 0.5)),
        ("机器学习可以预测洪水", "机器学习", "zh", (1, 1.0)),
        ("机器学习可以预测洪水", "水", "zh", (1, 1.0)),
        ("nothing", "", "en", (0, 0.0)),
    ],
)
def test_coverage_counts_words_in_every_form(text, query, language, expected):
    terms = parse(query, [language]).terms
    counter = TermCounter([term.forms for term in terms])
    counts = [counter.in_text(each, language) for each in ("other", text)]
    assert rank.coverage(counts, len(terms)) == expected


def test_phrases_prefixes_and_words_are_counted_in_entries():
    counter = TermCounter([["ab"], ["b"], ["ab cd"], ["ef cd", "cd ef"], ["ab*"], ["x*"]])
    assert counter.in_entries("ab cd ab cd ef abx ab") == Counts(7, (3, 0, 2, 1, 4, 0))
    assert counter.in_entries("") == Counts(0, (0,) * 6)


def test_rare_words_weigh_more_and_unknown_ones_nothing():
    rare, frequent, unknown = Weights.of([1, 90, 0], 100).by_term
    assert rare > frequent > unknown == 0.0
    assert Weights.of([1, 1], 100, [1.0, 0.5]).by_term[1] == rare / 2
    assert Weights.of([5], 3).by_term[0] > 0  # a count that is older than the total
    assert bm25([], Weights((1.0,))) == []


def test_a_word_of_the_name_counts_little_for_each_page():
    assert rank.discount((2.0, 2.0), (0.0, 3.0)) == (2.0, 2.0 * rank.NAMED)
    assert rank.discount((2.0,), ()) == (2.0,)


def test_a_document_scores_by_name_and_by_the_number_of_pages_with_a_word():
    found = {"=acme": [1], "sale": [1, 2, 3], "sale~2": [2, 3], "sale~4": [3]}
    lengths = np.array([(1, 2, 100), (2, 2, 100), (3, 2, 100), (4, 2, 100)])
    scores = rank.score_documents(found, [["acme"], ["sale"]], [1.0, 1.0], lengths, 4, 100.0)
    assert scores.keys() == {1, 2, 3}
    assert scores[1].name[0] > 0 and scores[2].name == (0.0, 0.0)
    assert 0 < scores[1].text[1] < scores[2].text[1] < scores[3].text[1]
    assert scores.totals() == {each: pytest.approx(scores[each].total) for each in (1, 2, 3)}
    assert scores.has_term(0) and scores.has_term(1)
    # Documents whose length is unknown are not in scope.
    assert rank.score_documents(found, [["sale"]], [1.0], lengths[:1], 4, 100.0).keys() == {1}


def test_analysed_text_is_counted_as_text():
    counter = TermCounter([["hous"], ["flood"]])
    text = "Two houses, one house; floods."
    assert counter.in_text(text, "en") == counter.in_entries(tsvector_input(text, "en"))


@given(
    st.lists(st.floats(0, 1e6), min_size=1).map(lambda scores: sorted(scores, reverse=True)),
    st.floats(0, 1),
)
def test_grades_keep_the_order_and_the_first_has_the_best(scores: list[float], best: float):
    found = scale_scores(scores, best)
    assert found[0] == pytest.approx(best)
    assert found == sorted(found, reverse=True)
    assert all(0 <= each <= 1 for each in found)
