"""Common words are looked for among some of the chunks of a large database, rare ones in all."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from quire.model.search import QueryTerms
from quire.store.db import dialect, document_entries
from quire.store.documents import pages
from quire.store.search import fulltext, sampled_gin
from quire.text import rank
from tests import plans
from tests.store.shelf import Shelf
from tests.store.stage import Stage

CHUNKS = 1_500


@pytest.fixture
def shelf(pg_stage: Stage, monkeypatch) -> Shelf:
    """All chunks have a common word, every 300th a rare one; and so many count as a lot."""
    monkeypatch.setattr(sampled_gin, "SAMPLE_MIN_CHUNKS", 100)
    monkeypatch.setattr(sampled_gin, "MAX_RANKED", 50)
    shelf = Shelf(pg_stage)
    texts = {
        f"t{n}": f"common {'half' if n % 2 else 'other'} {'rare' if n % 300 == 299 else n}"
        for n in range(CHUNKS)
    }
    with shelf.db.begin() as conn:
        rows = {name: (text, "en", 3) for name, text in texts.items()}
        pages.put_chunks(conn, shelf.tenant, rows, texts, 1)
    return shelf


def found(shelf: Shelf, *terms: str, limit: int = 10) -> list[int]:
    with shelf.db.read() as conn:
        index = fulltext.open_index(conn, shelf.tenant, QueryTerms(terms, terms))
        weights = rank.Weights.of(index.frequencies, index.total).by_term
        there = index.anywhere(lambda counts, total: weights, limit)
        return list(there.best(weights, limit).ids.tolist())


def texts_of(shelf: Shelf, ids: list[int]) -> list[str]:
    with shelf.db.read() as conn:
        found = conn.exec_driver_sql("SELECT id, text FROM chunks").all()
    rows: dict[int, str] = {row[0]: row[1] for row in found}
    return [rows[i] for i in ids]


def test_a_rare_word_is_found_in_every_chunk_that_has_it(shelf: Shelf):
    assert len(found(shelf, "rare")) == CHUNKS // 300
    assert len(found(shelf, "rare", "nowhere")) == CHUNKS // 300


def test_the_rare_word_decides_beside_a_common_one(shelf: Shelf):
    ids = found(shelf, "common", "rare", limit=5)
    assert all(text.endswith("rare") for text in texts_of(shelf, ids))


def test_a_common_word_is_found_as_often_as_asked_for(shelf: Shelf):
    assert len(found(shelf, "common")) == 10
    both = texts_of(shelf, found(shelf, "common", "half"))
    assert len(both) == 10
    assert all("half" in text for text in both)


def test_the_level_is_the_largest_whose_matches_can_be_scored(shelf: Shelf):
    with shelf.db.read() as conn:
        large = sampled_gin.Sample(conn, shelf.tenant, CHUNKS, ["common"])
        assert [large.level("common"), large.level("rare")] == [64, 1]
        assert sampled_gin.Sample(conn, shelf.tenant, 10, ["common"]).level("common") == 1


def test_what_is_dear_to_find_is_looked_for_in_less(shelf: Shelf, monkeypatch):
    monkeypatch.setattr(sampled_gin, "MAX_RANKED", 3_000)
    with shelf.db.read() as conn:
        large = sampled_gin.Sample(conn, shelf.tenant, CHUNKS, ["half", "rare"])
        assert large.level("half", scanned=1_000) == 1
        assert large.level("half", scanned=90_000) == 8
        # A smaller level would have too few of them.
        assert large.level("rare", scanned=90_000) == 1
        assert large.level("half", scanned=900_000) == 1


def test_counts_of_common_words_come_from_a_sample(shelf: Shelf):
    with shelf.db.read() as conn:
        sample = sampled_gin.Sample(conn, shelf.tenant, CHUNKS, ["common", "rare"])
        [often, rare, none] = sample.counts(["common", "rare", "none"], 40)
    assert often > 100
    assert (rare, none) == (CHUNKS // 300, 0)


def test_a_rare_word_is_read_along_an_index_of_words(shelf: Shelf):
    with shelf.db.begin() as conn:
        conn.exec_driver_sql("ANALYZE chunks")
    with shelf.db.read() as conn:
        dialect.set_local(conn, {"enable_seqscan": "off"})
        given = {"query": "rare", "term_0": "rare", "tenant": "default"}
        for level in sampled_gin.SAMPLE_RATES:
            statement = sa.text(sampled_gin.presence_in_sample(1, level))
            plan = plans.explain(conn, statement, given)
            assert "Bitmap Index Scan on ix_chunks_words" in plan, plan
            assert "Seq Scan" not in plan, plan


def test_entries_of_documents_are_looked_up_by_their_index_alone(pg_stage: Stage):
    shelf = Shelf(pg_stage)
    for n in range(3):
        shelf.file(f"file {n}", f"tide {n}")
    asked = []

    def note(conn, cursor, statement, parameters, context, executemany):
        if "document_words" in statement:
            asked.append((statement, parameters))

    with shelf.db.read() as conn:
        sa.event.listen(shelf.db.engine, "before_cursor_execute", note)
        for some in (None, [1, 2]):
            document_entries.matching(conn, shelf.tenant, ["tide", "moon"], 1, some)
        sa.event.remove(shelf.db.engine, "before_cursor_execute", note)
        for statement, parameters in asked:
            plan = "\n".join(
                row[0] for row in conn.exec_driver_sql(f"EXPLAIN {statement}", parameters)
            )
            assert "Bitmap Index Scan on ix_document_words_entries" in plan, plan
            assert "Index Scan using" not in plan and "Seq Scan" not in plan, plan
    assert len(asked) == 2
