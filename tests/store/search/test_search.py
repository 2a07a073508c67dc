"""Search sees live documents only, filters them, and answers the same on both databases."""

from __future__ import annotations

import json
import logging
import random
import re
import struct
import threading
from typing import Any

import pytest
import sqlalchemy as sa

from quire.control import ranking
from quire.control.search import search
from quire.errors import BadInput, NotFound, Refused, Transient
from quire.model.search import Model
from quire.store.db import document_entries
from quire.store.db.schema.documents import documents, generations, models, pages
from quire.store.db.schema.documents import vectors as vector_rows
from quire.store.documents import corpora
from quire.store.search import exact_scan, fulltext, sampled_gin, vectors
from quire.store.search import search as store
from quire.text import words
from tests.store.shelf import DIMENSIONS, Shelf, vector_of
from tests.store.stage import Stage


class Toy:
    """An embedder whose vector for a text is that of the chunk with the same text."""

    dimensions = DIMENSIONS

    def __init__(self, name: str = "toy") -> None:
        self.name = name

    def embed(self, texts, meanwhile=None):
        import numpy as np

        from quire.model.pipeline import text_digest

        return np.stack([np.frombuffer(vector_of(text_digest(t)), np.float32) for t in texts])


@pytest.fixture
def shelf(stage: Stage) -> Shelf:
    return Shelf(stage)


def hits(shelf: Shelf, query: str, **how: Any) -> list[tuple[str, int]]:
    how.setdefault("mode", "text")
    found = search(shelf.db, shelf.tenant, query, embedder=lambda name: Toy(), **how)
    return [(hit["name"], hit["page"]) for hit in found["items"]]


def test_a_hit_says_where_it_is_and_what_was_found(shelf: Shelf):
    filing = shelf.file("box/tides.txt", "The moon pulls the sea.\nShips wait for the tide.")
    found = search(shelf.db, shelf.tenant, "tides", mode="text")
    [hit] = found["items"]
    assert found["mode"] == "text"
    assert found["took_ms"] > 0
    assert hit["score"] > 0
    assert {**hit, "score": None} == {
        "document_id": filing.document_id, "name": "tides.txt", "page": 1, "label": None,
        "score": None, "text": "Ships wait for the tide.", "highlights": [[19, 23]], "boxes": [],
        "uri": "box/tides.txt", "corpora": [],
    }  # fmt: skip


def test_the_words_found_have_boxes_on_their_page(shelf: Shelf):
    import numpy as np

    from quire.parse.word_boxes import pack

    text = "The moon pulls the sea.\nShips wait\nfor the tide."
    shelf.file("a", text)
    boxes = [(10.0 * n, 100.0 if n < 5 else 120.0, 8.0, 10.0) for n in range(10)]
    with shelf.db.begin() as conn:
        conn.execute(sa.update(pages).values(words=pack(np.array(boxes))))
    [hit] = search(shelf.db, shelf.tenant, "sea pulls", mode="text")["items"]
    assert hit["boxes"] == [[20.0, 100.0, 8.0, 10.0], [40.0, 100.0, 8.0, 10.0]]
    [hit] = search(shelf.db, shelf.tenant, "tide", mode="text")["items"]
    assert hit["boxes"] == [[90.0, 120.0, 8.0, 10.0]]
    [*_, last] = search(
        shelf.db, shelf.tenant, "zebra", mode="vector", embedder=lambda name: Toy()
    )["items"]
    assert last["highlights"] == []
    assert last["boxes"]


def test_more_of_the_words_and_rarer_words_come_first(shelf: Shelf):
    shelf.file("a", "the red house stands by the road")
    shelf.file("b", "the red barn stands by the river")
    shelf.file("c", "a red barn, a red barn and once more a red barn")
    shelf.file("d", "green fields stand by the river")
    assert hits(shelf, "red barn") == [("c", 1), ("b", 1), ("a", 1)]
    assert hits(shelf, "river house") == [("a", 1), ("d", 1), ("b", 1)]


def test_words_in_quotes_stand_together(shelf: Shelf):
    shelf.file("a", "cold water and warm air")
    shelf.file("b", "warm water and cold air")
    assert hits(shelf, '"warm water"') == [("b", 1)]


def test_only_the_live_generation_is_found(shelf: Shelf):
    shelf.file("a", "old words about whales")
    building = shelf.queue("a")
    shelf.begin(building)
    shelf.fill(building, ["later words about dolphins"])
    assert hits(shelf, "whales") == [("a", 1)]
    assert hits(shelf, "dolphins") == []
    shelf.swap(building)
    assert hits(shelf, "whales") == []
    assert hits(shelf, "dolphins") == [("a", 1)]


def test_a_page_counts_as_the_live_generation_cuts_it(shelf: Shelf):
    shelf.file("a", "one line\nanother line", cut="lines")
    other = shelf.queue("b")
    shelf.begin(other)
    shelf.fill(other, ["a third line"], cut="other")
    shelf.swap(other)
    found = search(shelf.db, shelf.tenant, "another line", mode="text")["items"]
    assert {(hit["name"], hit["text"]) for hit in found} == {
        ("a", "another line"), ("b", "a third line")
    }  # fmt: skip


def test_a_text_in_several_documents_is_a_hit_in_each_at_its_first_page(shelf: Shelf):
    shelf.file("a", "cover", "the same words", "the same words\nthe same words")
    shelf.file("b", "the same words")
    assert hits(shelf, "same words") == [("a", 2), ("b", 1)]
    assert hits(shelf, "same words", limit=1) == [("a", 2)]


def test_filters_by_corpus_document_metadata_and_type(shelf: Shelf):
    first = shelf.file("a", "shared words", corpus="law")
    second = shelf.file("b", "shared words again", corpus="tax")
    shelf.file("c", "shared words once more")
    entries = {"year": 2024, "final": True, "odd $.key": "x"}
    with shelf.db.begin() as conn:
        d, g = documents.c, generations.c
        mine = sa.update(documents).where(d.id == second.document_id)
        conn.execute(mine.values(metadata=json.dumps(entries), media_type="application/pdf"))
        mine = sa.update(generations).where(g.document_id == second.document_id)
        conn.execute(mine.values(media_type="application/pdf"))
    assert hits(shelf, "shared", corpus="law") == [("a", 1)]
    assert hits(shelf, "shared", documents=[first.document_id]) == [("a", 1)]
    assert hits(shelf, "shared", where={"year": "2024"}) == [("b", 1)]
    assert hits(shelf, "shared", where={"final": "true", "odd $.key": "x"}) == [("b", 1)]
    assert hits(shelf, "shared", where={"final": "false"}) == []
    assert hits(shelf, "shared", media_type="application/pdf") == [("b", 1)]
    assert hits(shelf, "shared", media_type="application/pdf", corpus="law") == []


def test_another_tenants_documents_are_never_found(stage: Stage):
    ours, theirs = Shelf(stage), Shelf(stage, tenant="theirs")
    ours.file("a", "our words")
    theirs.file("b", "their words")
    for mode in ("text", "vector", "hybrid"):
        assert hits(ours, "words", mode=mode) == [("a", 1)]
        assert hits(theirs, "words", mode=mode) == [("b", 1)]


@pytest.mark.parametrize("mode", ["text", "vector"])
def test_candidates_are_fetched_until_there_are_enough_hits(shelf: Shelf, monkeypatch, mode):
    monkeypatch.setattr(store, "FIRST_CANDIDATES", 4)
    noise = shelf.queue("noise")
    shelf.begin(noise)
    shelf.fill(noise, ["\n".join(f"needle needle number {n}" for n in range(300))])
    shelf.file("a", "needle in a long line of hay that goes on")
    shelf.file("b", "another needle in a long line of hay", corpus="law")
    assert sorted(hits(shelf, "needle", mode=mode)) == [("a", 1), ("b", 1)]
    assert hits(shelf, "needle", mode=mode, corpus="law") == [("b", 1)]


def test_common_words_are_looked_for_where_rare_ones_find_too_little(shelf: Shelf, monkeypatch):
    monkeypatch.setattr(fulltext, "COMMON_CHUNKS", 3)
    for n in range(6):
        shelf.file(f"c{n}", f"common words of number {n}")
    shelf.file("rare", "a rare and common thing")
    found = hits(shelf, "rare common")
    assert found[0] == ("rare", 1)
    assert len(found) == 7
    assert hits(shelf, "rare common", limit=1) == [("rare", 1)]
    assert len(hits(shelf, "common words")) == 7


def few(monkeypatch: pytest.MonkeyPatch, common: int) -> None:
    """Let words in more chunks than these be common, on both databases."""
    monkeypatch.setattr(fulltext, "COMMON_CHUNKS", common)
    monkeypatch.setattr(sampled_gin, "MAX_RANKED", common)


def test_the_few_with_a_rare_word_are_found_among_too_many_with_a_common_one(
    shelf: Shelf, monkeypatch
):
    few(monkeypatch, 3)
    shelf.file("rare", "a rare and common thing")
    for n in range(20):
        shelf.file(f"c{n}", f"common words of number {n}")
    assert hits(shelf, "rare common")[0] == ("rare", 1)


def test_common_words_do_not_favour_what_was_ingested_last_or_first(shelf: Shelf, monkeypatch):
    few(monkeypatch, 3)
    monkeypatch.setattr(fulltext, "SAMPLE_BLOCK", 2)
    monkeypatch.setattr(ranking, "BEST_DOCUMENTS", 0)
    if shelf.stage.is_postgres:
        return  # samples need 50,000 chunks: test_fulltext_levels has them
    for n in range(320):
        shelf.file(f"d{n:03}", f"common words of number {n}")
    found = [name for name, _ in hits(shelf, "common words", limit=100)]
    assert len(found) >= 30
    assert len([name for name in found if name < "d160"]) == pytest.approx(len(found) / 2, abs=4)


def test_the_first_hits_do_not_depend_on_how_many_are_asked_for(shelf: Shelf, monkeypatch):
    few(monkeypatch, 10)
    dice = random.Random(4)
    names = ("tide", "pilot", "ledger", "copper", "barley", "slate", "wool", "cider")
    for n in range(30):
        lines = [" ".join(dice.choices(names, k=dice.randint(2, 9))) for _ in range(6)]
        shelf.file(f"{names[n % 8]}-{n}", "\n".join(lines[:3]), "\n".join(lines[3:]))
    for query in ("tide pilot ledger copper", "wool", "barley slate cider 7"):
        for mode in ("text", "hybrid", "vector"):
            ten, hundred = (hits(shelf, query, mode=mode, limit=n) for n in (10, 100))
            assert len(ten) == 10
            assert hundred[:10] == ten


def test_a_page_is_one_hit_with_its_best_chunk(shelf: Shelf):
    shelf.file("a", "tide\nthe tide and the moon\nwater", "moon")
    found = search(shelf.db, shelf.tenant, "tide moon", mode="text")["items"]
    assert [(hit["page"], hit["text"]) for hit in found] == [
        (1, "the tide and the moon"),
        (2, "moon"),
    ]


def test_the_first_lines_of_a_page_count_for_all_of_its_chunks(shelf: Shelf):
    shelf.file("a", "Cash flows\n2018\npurchases 12", "Income\n2018\npurchases 12", "purchases 12")
    assert hits(shelf, "cash flows purchases")[0] == ("a", 1)
    assert hits(shelf, "income purchases")[0] == ("a", 2)


def test_the_name_of_a_document_tells_which_of_equal_pages_is_meant(shelf: Shelf):
    for year in (2017, 2018, 2019):
        shelf.file(f"AcmeWorks_{year}_10K.pdf", f"cover {year}", f"capital spent {year - 1000}")
    for query in ("capital spent acme works FY2018", "acmeworks 18 capital spent 2018"):
        assert hits(shelf, query)[0] == ("AcmeWorks_2018_10K.pdf", 2)
    # A name alone finds the first page, whatever it says.
    assert hits(shelf, "acme works fy19")[0] == ("AcmeWorks_2019_10K.pdf", 1)


def test_words_of_other_pages_tell_which_document_is_meant(shelf: Shelf):
    shelf.file("scan1", "Borgo Foods", "net sales 12")
    shelf.file("scan2", "Delphi Foods", "net sales 34")
    shelf.file("scan3", "Ember Foods", "net sales 56")
    assert hits(shelf, "net sales of Delphi")[:1] == [("scan2", 1)]
    assert ("scan2", 2) in hits(shelf, "net sales of Delphi")[:3]


def test_a_new_generation_replaces_the_words_of_the_document(shelf: Shelf):
    shelf.file("Alder.pdf", "alpha", "beta")
    shelf.file("Alder.pdf", "gamma", "beta")
    shelf.file("Borgo.pdf", "alpha", "beta")
    with shelf.db.read() as conn:
        found = document_entries.matching(conn, "default", ["alpha", "gamma", "beta", "=alder"], 9)
    assert [len(ids) for ids in found] == [1, 1, 2, 1]


def test_a_deleted_document_leaves_no_words(shelf: Shelf):
    filing = shelf.file("Alder.pdf", "alpha")
    kept = shelf.file("Borgo.pdf", "alpha")
    shelf.db.write(
        lambda conn, now: corpora.delete_documents(conn, "default", [filing.document_id], now=now)
    )
    with shelf.db.read() as conn:
        assert document_entries.matching(conn, "default", ["alpha", "=alder"], 9) == [
            [kept.document_id], []
        ]  # fmt: skip
    assert shelf.stage.rows("document_words")[0].document_id == kept.document_id


def test_fields_restrict_a_search_by_name_year_and_type(shelf: Shelf):
    shelf.file("AcmeWorks_2018.pdf", "net sales")
    shelf.file("AcmeWorks_2019.pdf", "net sales")
    shelf.file("Borgo-2019.txt", "net sales")
    assert sorted(hits(shelf, "sales name:acme")) == [
        ("AcmeWorks_2018.pdf", 1), ("AcmeWorks_2019.pdf", 1)
    ]  # fmt: skip
    assert hits(shelf, "sales name:acme year:FY18") == [("AcmeWorks_2018.pdf", 1)]
    assert len(hits(shelf, "sales year:2019")) == 2
    assert hits(shelf, "sales name:nobody") == []
    assert len(hits(shelf, "sales type:txt")) == 3  # the shelf's files are all text
    assert hits(shelf, "sales type:pdf") == []
    with pytest.raises(BadInput, match=r"type:doc is not a media type or one of csv, docx"):
        hits(shelf, "sales type:doc")
    with pytest.raises(BadInput, match="year:last is not a year"):
        hits(shelf, "sales year:last")


def test_a_field_alone_lists_the_documents(shelf: Shelf):
    shelf.file("AcmeWorks_2018.pdf", "net sales")
    shelf.file("Borgo_2018.pdf", "cost")
    assert hits(shelf, "name:acme") == [("AcmeWorks_2018.pdf", 1)]
    assert sorted(hits(shelf, "year:2018")) == [("AcmeWorks_2018.pdf", 1), ("Borgo_2018.pdf", 1)]


def test_odd_queries_have_clear_answers(shelf: Shelf):
    shelf.file("a", "the cat and the hat of 2018")
    shelf.file("b", "NOT a dog OR a NEAR cat")
    assert hits(shelf, "the of and")[0][0] == "a"
    assert hits(shelf, "2018") == [("a", 1)]
    assert sorted(hits(shelf, 'cat AND NOT OR NEAR( * ^ "')) == [("a", 1), ("b", 1)]
    assert hits(shelf, "?!.,") == []
    long = " ".join(f"word{n}" for n in range(1_200))
    found = search(shelf.db, shelf.tenant, f"cat {long}"[:10_000], mode="text")
    assert {hit["name"] for hit in found["items"]} == {"a", "b"}
    assert found["note"] == "Only the first 32 words of the query were used."
    with pytest.raises(BadInput, match=r"10,001 characters \(at most 10,000\)"):
        hits(shelf, "x" * 10_001)


def test_a_misspelt_word_is_searched_for_as_the_nearest_word_in_scope(shelf: Shelf):
    shelf.file("Acme.pdf", "the revenue of the year", "revenue", corpus="law")
    other = shelf.file("Borgo.pdf", "costs of the yield")

    def answer(query: str, **how: Any) -> dict[str, Any]:
        return search(shelf.db, shelf.tenant, query, mode="text", **how)

    found = answer("reveune of Acme")
    assert found["items"][0]["name"] == "Acme.pdf"
    assert found["did_you_mean"] == {"reveune": "revenue"}
    assert "No document contains 'reveune'; 'revenue' was searched for" in found["note"]
    assert answer("acne revenue")["did_you_mean"] == {"acne": "acme"}
    for query in ("revenue acme", "xylophone", "xyz"):
        assert "did_you_mean" not in answer(query)
    # Words of documents that are out of scope are not told.
    assert "did_you_mean" not in answer("yeild", corpus="law")
    assert answer("yeild", documents=[other.document_id])["did_you_mean"] == {"yeild": "yield"}


def test_a_hybrid_query_in_other_words_is_not_taken_for_misspelt(shelf: Shelf):
    shelf.file("Acme.pdf", "the revenue of the year")

    def corrected(query: str, mode: str) -> dict[str, str]:
        found = search(shelf.db, shelf.tenant, query, mode=mode, embedder=lambda name: Toy())
        told: dict[str, str] = found.get("did_you_mean", {})
        return told

    assert corrected("reveune acme", "hybrid") == {"reveune": "revenue"}
    assert corrected("reveune yaer acme", "hybrid") == {}
    assert corrected("reveune yaer acme", "text") == {"reveune": "revenue", "yaer": "year"}


def test_a_word_that_the_tenant_often_has_is_not_taken_for_misspelt(shelf: Shelf, monkeypatch):
    monkeypatch.setattr(ranking, "SPELT_RIGHT", 3)
    law = shelf.file("law", "costs of the yield", corpus="law")
    for n in range(3):
        shelf.file(f"other-{n}", f"the yeild of number {n}")

    def answer(query: str, **how: Any) -> dict[str, Any]:
        return search(shelf.db, shelf.tenant, query, mode="text", corpus="law", **how)

    assert "did_you_mean" not in answer("costs yeild")
    # A caller who may see this corpus only is not told by it what others have.
    assert answer("costs yeild", is_closed=True)["did_you_mean"] == {"yeild": "yield"}
    # A few do not make it right.
    monkeypatch.setattr(ranking, "SPELT_RIGHT", 4)
    assert answer("costs yeild")["items"][0]["document_id"] == law.document_id
    assert answer("costs yeild")["did_you_mean"] == {"yeild": "yield"}


def test_the_best_page_by_words_is_first_in_hybrid_search_too(shelf: Shelf):
    dice = random.Random(8)
    names = ("tide", "pilot", "ledger", "copper", "barley", "slate")
    for n in range(12):
        pages = [" ".join(dice.choices(names, k=7)) for _ in range(4)]
        shelf.file(f"file {n}", *pages)
    for query in ("tide pilot ledger", "copper barley slate tide", "ledger pilot barley"):
        words, both = (hits(shelf, query, mode=mode, limit=100) for mode in ("text", "hybrid"))
        assert both[0] == words[0]
        assert both != words  # vectors order the others


def test_the_longest_answer_is_full_though_few_texts_are_scored(shelf: Shelf, monkeypatch):
    monkeypatch.setattr(ranking, "SCORED", 5)
    for n in range(30):
        shelf.file(f"file {n}", *(f"the tide of {n}, page {page}" for page in range(4)))
    assert len(hits(shelf, "tide", limit=100)) == 100


def test_a_hit_explains_what_gave_its_score(shelf: Shelf):
    shelf.file("AcmeWorks_2018.pdf", "cover", "Cash flows\npurchases of plant")
    shelf.file("Borgo.pdf", "Cash flows\nsale of plant")
    [first, *_] = search(
        shelf.db,
        shelf.tenant,
        "acme purchases plant cash",
        explain=True,
        embedder=lambda name: Toy(),
    )["items"]
    why = first["why"]
    assert (first["name"], first["page"]) == ("AcmeWorks_2018.pdf", 2)
    words = {each["word"]: each for each in why["words"]}
    assert words["purchases"]["text"] > 0
    assert words["cash"]["heads"] > 0
    assert words["acme"] == {"word": "acme", "name": words["acme"]["name"]}
    assert why["name"] > 0
    assert why["page"] == why["document"] == 1.0
    assert 0 < why["cosine"] <= 1
    assert "why" not in search(shelf.db, shelf.tenant, "acme", mode="text")["items"][0]


def test_what_is_close_to_nothing_is_not_returned_as_meaning(shelf: Shelf):
    class Far(Toy):
        def embed(self, texts, meanwhile=None):
            import numpy as np

            return np.array([[-1.0, 1.0, 0.05, 0.0]] * len(texts), np.float32)

    shelf.file("a", "alpha", "beta")
    for mode in ("hybrid", "vector"):
        found = search(shelf.db, shelf.tenant, "zzzz", mode=mode, embedder=lambda name: Far())
        assert found["items"] == []
    [note] = {search(shelf.db, shelf.tenant, "zzzz", embedder=lambda name: Far())["note"]}
    assert note == "No document contains these words, and none is close in meaning."


def test_names_and_words_of_other_tenants_change_nothing(stage: Stage):
    ours, theirs = Shelf(stage), Shelf(stage, tenant="theirs")
    ours.file("AcmeWorks_2018.pdf", "net sales 12", "net cost")
    ours.file("Borgo_2018.pdf", "net sales 34")

    def answer(query: str) -> Any:
        found = search(stage.db, "default", query, explain=True, embedder=lambda name: Toy())
        return [{**hit, "took_ms": 0} for hit in found["items"]]

    queries = ("acme works sales", "name:acme net", "2018 sales", "net")
    before = [answer(query) for query in queries]
    for n in range(12):
        theirs.file(f"AcmeWorks_2018_{n}.pdf", "net sales 12", "net acme sales")
    assert [answer(query) for query in queries] == before
    assert {hit["name"] for hit in answer("acme works sales")} <= {
        "AcmeWorks_2018.pdf", "Borgo_2018.pdf"
    }  # fmt: skip


def test_a_word_that_is_nowhere_does_not_hide_chunks_with_all_the_others(shelf: Shelf, monkeypatch):
    monkeypatch.setattr(fulltext, "COMMON_CHUNKS", 3)
    for n in range(6):
        shelf.file(f"a{n}", f"alpha stands alone here {n}")
        shelf.file(f"b{n}", f"beta stands alone here {n}")
    shelf.file("both", "alpha and beta stand together in a longer line than those")
    assert hits(shelf, "alpha beta nowhere", limit=1) == [("both", 1)]
    assert hits(shelf, "nowhere neither") == []


def test_vectors_find_the_nearest_first(shelf: Shelf):
    shelf.file("a", "alpha", "beta", "gamma", "delta")
    assert hits(shelf, "gamma", mode="vector")[0] == ("a", 3)
    found = search(shelf.db, shelf.tenant, "gamma", mode="vector", embedder=lambda name: Toy())
    scores = [hit["score"] for hit in found["items"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1.0)


@pytest.mark.parametrize("mode", ["hybrid", "text", "vector"])
def test_scores_fall_from_at_most_one_in_every_mode(shelf: Shelf, mode: str):
    shelf.file("a", "alpha beta", "beta gamma", "gamma delta alpha", "delta")
    for query in ("alpha beta", "gamma", "alpha zebra", "zebra lion"):
        found = search(shelf.db, shelf.tenant, query, mode=mode, embedder=lambda name: Toy())
        scores = [hit["score"] for hit in found["items"]]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)


def test_a_text_with_all_words_has_the_best_score_and_one_with_none_a_lower_one(shelf: Shelf):
    shelf.file("a", "alpha beta", "gamma delta")

    def best(query: str, **how: Any) -> tuple[float, str | None]:
        found = search(shelf.db, shelf.tenant, query, embedder=lambda name: Toy(), **how)
        return found["items"][0]["score"], found.get("note")

    assert best("beta alpha") == (1.0, None)
    assert best("alpha", mode="text") == (1.0, None)
    assert best("alpha zebra", mode="text") == (0.5, None)
    score, note = best("zzzz qqqq")
    assert score < 1.0
    assert note == "No document contains these words. These are the closest by meaning."
    assert best("zzzz qqqq", mode="vector")[1] is None


def test_fused_search_has_what_either_finds(shelf: Shelf):
    shelf.file("a", "alpha", "beta")
    shelf.file("b", "words without vectors", model=None)
    found = hits(shelf, "vectors", mode="hybrid")
    assert found[0] == ("b", 1)
    assert sorted(found) == [("a", 1), ("a", 2), ("b", 1)]


def test_vectors_compared_in_a_thread_give_what_they_give_without(shelf: Shelf, monkeypatch):
    for n in range(12):
        shelf.file(f"d{n}", f"line {n}", f"verse {n}", corpus="law" if n < 3 else None)
    asked: list[dict[str, Any]] = [{}, {"corpus": "law"}, {"limit": 3}]
    plain = [hits(shelf, "verse 4", mode="hybrid", **how) for how in asked]
    begun: list[str] = []
    compare = exact_scan._cosines

    def noting(matrix, point):
        begun.append(threading.current_thread().name)
        return compare(matrix, point)

    monkeypatch.setattr(exact_scan, "THREAD_MIN_VECTORS", 1)
    monkeypatch.setattr(exact_scan, "_cosines", noting)
    assert [hits(shelf, "verse 4", mode="hybrid", **how) for how in asked] == plain
    if shelf.db.path is not None:
        assert len(begun) == len(asked)
        assert all(name.startswith("vectors") for name in begun)


def test_documents_of_several_models_are_each_searched_with_their_own(shelf: Shelf):
    shelf.file("a", "alpha", model="toy")
    shelf.file("b", "alpha", "beta", model="other")
    opened: list[str] = []
    named = iter(["other", "toy"])

    def embedder(name: str) -> Toy:
        opened.append(name)
        return Toy(next(named))

    found = search(shelf.db, shelf.tenant, "alpha", mode="vector", embedder=embedder)
    assert len(opened) == 2
    assert {(hit["name"], hit["page"]) for hit in found["items"]} == {("a", 1), ("b", 1), ("b", 2)}
    assert "note" not in found


def test_without_its_embedder_a_search_goes_by_words_and_says_so(shelf: Shelf):
    shelf.file("a", "alpha")

    def failing(name: str) -> Toy:
        raise Transient("endpoint: it did not answer.")

    for embedder in (failing, lambda name: Toy("a later one")):
        found = search(shelf.db, shelf.tenant, "alpha", embedder=embedder)
        assert [hit["name"] for hit in found["items"]] == ["a"]
        assert found["mode"] == "text"
        assert "by words" in found["note"]


def test_a_later_model_is_not_mixed_with_an_earlier_one(shelf: Shelf):
    shelf.file("a", "alpha", model="toy")
    shelf.file("a", "alpha", model="later")
    found = search(shelf.db, shelf.tenant, "alpha", mode="vector", embedder=lambda n: Toy("later"))
    assert [hit["name"] for hit in found["items"]] == ["a"]
    assert "note" not in found


def test_what_cannot_be_asked_is_refused_with_a_reason(shelf: Shelf):
    shelf.file("a", "alpha")
    with pytest.raises(BadInput, match="empty"):
        hits(shelf, "  \n")
    with pytest.raises(BadInput, match="not one of hybrid, text, vector"):
        hits(shelf, "alpha", mode="best")
    with pytest.raises(BadInput, match="mode 'fused' was renamed to 'hybrid'"):
        hits(shelf, "alpha", mode="fused")
    with pytest.raises(BadInput, match="between 1 and 100"):
        hits(shelf, "alpha", limit=0)
    with pytest.raises(NotFound, match="corpus nowhere: no such corpus"):
        hits(shelf, "alpha", corpus="nowhere")


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "a AND",
        "NEAR(",
        "*",
        "-",
        "words:x",
        "'",
        "& |",
        "(",
        "\\",
        "\0",
        "%s :x",
        "ß",
        "é" * 99,
    ],
)
def test_odd_queries_are_only_words(shelf: Shelf, query: str):
    shelf.file("a", "alpha")
    assert hits(shelf, f"{query} alpha") == [("a", 1)]
    assert hits(shelf, f"alpha{query}", mode="hybrid")


@pytest.mark.parametrize("query", ["2½", "½", "no3⁄4", "paŀlid", "a\u19b0b", "\u1b06b", "\u37aa"])
def test_a_word_that_analysis_takes_apart_is_found_and_never_an_error(shelf: Shelf, query: str):
    shelf.file("a", f"{query} cups of alpha")
    shelf.file("b", "beta")
    assert hits(shelf, f"{query} alpha")[0] == ("a", 1)
    assert hits(shelf, f"beta {query}")


def test_no_letter_makes_the_index_of_documents_fail(shelf: Shelf):
    shelf.file("a", "alpha")
    letters = map(chr, (*range(0x80, 0x3000), *range(0xA000, 0xABFF), *range(0x1D400, 0x1D800)))
    found = {word for each in letters for word in words.analyse(words.split_words(f"a{each}b"), "")}
    with shelf.db.read() as conn:
        assert not any(document_entries.matching(conn, "default", sorted(found), 9))


def test_an_empty_database_has_no_hits(shelf: Shelf):
    assert hits(shelf, "anything", mode="hybrid") == []


def test_a_model_keeps_its_dimensions(shelf: Shelf):
    with shelf.db.begin() as conn:
        first = vectors.register(conn, "m", 8)
        assert vectors.register(conn, "m", 8) == first
        with pytest.raises(Refused, match="expected 8, got 16"):
            vectors.register(conn, "m", 16)
        vectors.register(conn, "wide", 3_072)
        vectors.register(conn, "widest", 8_000)
        assert len(conn.execute(sa.select(models)).all()) == 3


def nearest(shelf: Shelf, point: list[float], limit: int = 3) -> list[int]:
    query = struct.pack("4f", *point)
    with shelf.db.read() as conn:
        found = vectors.searcher(conn, shelf.tenant, Model(1, "toy", 4), query).nearest(limit)
    return [i for i, _ in found.ranked]


def put(shelf: Shelf, point: list[float], text: str) -> int:
    """Store a chunk with a vector and return its id."""
    from quire.store.documents import pages as putting

    with shelf.db.begin() as conn:
        model = vectors.register(conn, "toy", 4)
        made = putting.put_chunks(conn, shelf.tenant, {text: (text, "en", 1)}, {text: text}, 1)
        putting.put_vectors(conn, shelf.tenant, model, {text: struct.pack("4f", *point)})
        return made[text]


def test_vectors_written_and_deleted_later_are_noticed(shelf: Shelf):
    east = put(shelf, [2, 0, 0, 0], "east")
    assert nearest(shelf, [1, 0.1, 0, 0]) == [east]
    north = put(shelf, [0, 3, 0, 0], "north")
    assert nearest(shelf, [1, 0.1, 0, 0]) == [east, north]
    with shelf.db.begin() as conn:
        conn.execute(sa.delete(vector_rows).where(vector_rows.c.chunk_id == north))
        conn.exec_driver_sql(f"DELETE FROM chunks WHERE id = {north}")
    # The row of the deleted one is used again on SQLite, by a vector that points elsewhere.
    west = put(shelf, [-1, 0, 0, 0], "west")
    assert west > north
    assert nearest(shelf, [1, 0.1, 0, 0]) == [east, west]
    assert nearest(shelf, [-1, 0, 0, 0]) == [west, east]
    with shelf.db.begin() as conn:
        conn.execute(sa.delete(vector_rows))
    assert nearest(shelf, [1, 0, 0, 0]) == []


def test_vectors_are_read_once(stage: Stage):
    shelf = Shelf(stage)
    if stage.is_postgres:
        return
    put(shelf, [1, 0, 0, 0], "east")
    nearest(shelf, [1, 0, 0, 0])
    sent: list[str] = []

    def note(conn, cursor, statement, parameters, context, executemany):
        sent.append(statement)

    sa.event.listen(shelf.db.engine, "before_cursor_execute", note)
    nearest(shelf, [1, 0, 0, 0])
    assert sent == ["PRAGMA data_version"]
    put(shelf, [0, 1, 0, 0], "north")
    sent.clear()
    nearest(shelf, [1, 0, 0, 0])
    [read] = [each for each in sent if "vectors.vector" in each]
    assert "vectors.rowid >" in read


def test_too_many_vectors_for_a_scan_are_told_once(stage: Stage, monkeypatch, caplog):
    shelf = Shelf(stage)
    monkeypatch.setattr(exact_scan, "WARN_VECTORS", 1)
    monkeypatch.setattr(logging.getLogger("quire"), "propagate", True)
    for n, name in enumerate(("east", "north", "west")):
        put(shelf, [1, n, 0, 0], name)
        nearest(shelf, [1, 0, 0, 0])
    told = [each for each in caplog.records if each.getMessage() == "search.many_vectors"]
    assert len(told) == (0 if stage.is_postgres else 1)


def test_languages_are_found_without_reading_all_chunks(stage: Stage):
    shelf = Shelf(stage)
    from quire.store.documents import pages as putting

    texts = {f"t{n}": (f"text {n}", lang, 1) for n, lang in enumerate(["en", "de", "en", "vi"])}
    with stage.db.begin() as conn:
        putting.put_chunks(conn, shelf.tenant, texts, dict.fromkeys(texts, "x"), 1)
        assert store.languages(conn, shelf.tenant) == ["de", "en", "vi"]
        assert store.languages(conn, "nobody") == []


def test_german_and_chinese_are_found_by_their_own_rules(stage: Stage):
    shelf = Shelf(stage)
    from quire.text import words

    index = words.tsvector_input if stage.is_postgres else words.fts5_input
    said = {"de": "Die Häuser am Fluss wurden verkauft", "zh": "河边的房子已经卖掉了"}
    with stage.db.begin() as conn:
        from quire.store.documents import pages as putting

        texts = {language: (text, language, 9) for language, text in said.items()}
        analysed = {language: index(text, language) for language, text in said.items()}
        ids = putting.put_chunks(conn, shelf.tenant, texts, analysed, 1)
    for query, language in (("haus", "de"), ("Häusern", "de"), ("房子", "zh"), ("卖", "zh")):
        assert matching(shelf, query) == [ids[language]], query


def matching(shelf: Shelf, query: str) -> list[int]:
    from quire.model.search import QueryTerms
    from quire.text import words

    plain, simple = (words.query_terms(query, ["de", "zh"], simple=s) for s in (False, True))
    asked = QueryTerms(
        tuple(words.fts5_query([forms]) for forms in plain),
        tuple(words.tsquery([forms]) for forms in simple),
    )
    with shelf.db.read() as conn:
        index = fulltext.open_index(conn, shelf.tenant, asked)
        found = index.anywhere(lambda counts, total: [1.0] * len(counts), 10)
        return list(found.best([1.0] * len(plain), 10).ids.tolist())


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
def test_a_reader_during_swaps_sees_one_whole_generation(shelf: Shelf, mode: str):
    """All hits of a document are of one generation, and none is missing, while it is swapped."""
    lines = [[f"{colour} needle {n}" for n in range(6)] for colour in ("red", "blue")]
    first = shelf.file("a", *lines[0])
    second = shelf.queue("a")
    shelf.begin(second)
    shelf.fill(second, lines[1])
    shelf.swap(second)
    over = threading.Event()
    live = {0: first.generation, 1: second.generation}
    g = generations.c

    def swap() -> None:
        for count in range(1000):
            other, one = live[count % 2], live[1 - count % 2]
            with shelf.db.begin() as conn:
                conn.execute(
                    sa.update(generations).where(g.generation == one).values(state="replaced")
                )
                conn.execute(sa.update(documents).values(live_generation=other))
                conn.execute(
                    sa.update(generations).where(g.generation == other).values(state="live")
                )
            if over.is_set() and count % 2:
                return

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen = set()
    try:
        for _ in range(60):
            found = search(
                shelf.db, shelf.tenant, "needle", mode=mode, embedder=lambda name: Toy()
            )["items"]
            colours = {hit["text"].split()[0] for hit in found}
            assert len(found) == 6
            assert len(colours) == 1, colours
            seen |= colours
    finally:
        over.set()
        swapping.join()
    assert seen == {"red", "blue"}


@pytest.fixture
def full(stage: Stage) -> Stage:
    """Some hundred chunks, without statistics on SQLite, where nobody gathers them."""
    shelf = Shelf(stage)
    for n in range(8):
        texts = [f"word{n} of page {p}\nneedle number {n * p}" for p in range(20)]
        shelf.file(f"d{n}", *texts, corpus="law" if n % 4 else "tax")
    if stage.is_postgres:
        with stage.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            conn.exec_driver_sql("VACUUM ANALYZE")
    return stage


def plans(stage: Stage, **how: Any) -> list[str]:
    """Run a search and return the plans of its statements."""
    sent: list[tuple[str, Any]] = []

    def note(conn, cursor, statement, parameters, context, executemany):
        if statement.startswith(("SELECT", "WITH")):
            sent.append((statement, parameters))

    sa.event.listen(stage.db.engine, "before_cursor_execute", note)
    search(stage.db, "default", "needle", embedder=lambda name: Toy(), **how)
    sa.event.remove(stage.db.engine, "before_cursor_execute", note)
    verb = "EXPLAIN " if stage.is_postgres else "EXPLAIN QUERY PLAN "
    with stage.db.read() as conn:
        if stage.is_postgres:  # a few hundred rows are cheaper to scan and to sort
            conn.exec_driver_sql("SET LOCAL enable_seqscan = off")
            conn.exec_driver_sql("SET LOCAL enable_sort = off")
        return [
            "\n".join(str(row[-1]) for row in conn.exec_driver_sql(verb + statement, parameters))
            for statement, parameters in sent
        ]


NARROW: tuple[dict[str, Any], ...] = (
    {},
    {"corpus": "tax"},
    {"documents": [7]},
    {"where": {"a": "b"}},
)
WIDE = "(documents|generations|leaves|slices|chunks|pages|vectors)"


def test_every_statement_of_a_search_uses_indexes(full: Stage, monkeypatch):
    monkeypatch.setattr(store, "FIRST_CANDIDATES", 1)
    for how in NARROW:
        for plan in plans(full, limit=20, **how):
            assert not re.search(rf"SCAN {WIDE}\b(?!.*USING)", plan), plan
            assert not re.search(f"Seq Scan on {WIDE}", plan), plan


def test_entries_of_documents_are_looked_up_by_their_index_alone(full: Stage):
    """Any other way decompresses the words of all documents of the tenant, for each entry."""
    if not full.is_postgres:
        return
    asked = [plan for how in NARROW for plan in plans(full, **how) if "entries @>" in plan]
    assert asked
    for plan in asked:
        assert "ix_document_words_entries" in plan
        assert "ix_document_words_tenant" not in plan, plan


def test_candidates_are_looked_up_from_the_chunk_on(full: Stage):
    """Without statistics SQLite would rather begin with all documents of the tenant."""
    if full.is_postgres:
        return
    for how in NARROW:
        if "documents" in how:  # the index is asked for these at once
            continue
        asked = [
            plan for plan in plans(full, **how) if "SCAN ids" in plan and "ix_leaves_page" in plan
        ]
        assert asked  # which of the nearest are live, and where all candidates stand
        for plan in asked:
            last = plan.index("SEARCH documents USING INTEGER PRIMARY KEY (rowid=?)")
            assert plan.index("ix_slices_chunk") < plan.index("ix_leaves_page") < last, plan


def test_the_chunks_of_a_small_scope_are_listed_once_and_not_by_the_index_query(full: Stage):
    """Inside of an index query, SQLite plans the subquery of a scope badly."""
    if full.is_postgres:
        return
    with full.db.begin() as conn:  # so that the corpus is a small part
        conn.exec_driver_sql("UPDATE sqlite_sequence SET seq = 100000 WHERE name = 'chunks'")
    Shelf(full).file("last", "The last chunk.")
    for how in ({"corpus": "tax"}, {"documents": [7]}):
        sent: list[str] = []

        def note(conn, cursor, statement, parameters, context, executemany, sent=sent):
            sent.append(statement)

        sa.event.listen(full.db.engine, "before_cursor_execute", note)
        found = search(
            full.db, "default", "needle number 7", embedder=lambda name: Toy(), limit=20, **how
        )
        sa.event.remove(full.db.engine, "before_cursor_execute", note)
        assert len(found["items"]) == 20
        assert len([each for each in sent if "in_scope" in each]) == 1
        asked = [each for each in sent if "MATCH" in each]
        assert asked
        assert not any("slices" in each for each in asked)


def test_the_nearest_vectors_are_found_by_their_index(full: Stage):
    if not full.is_postgres:
        return
    found = plans(full, mode="vector")
    assert any("Index Scan using ix_vectors_model_1" in plan for plan in found), found


def test_a_chunk_that_is_there_already_is_not_stored_again(stage: Stage):
    from quire.store.documents import pages as putting

    shelf = Shelf(stage)
    texts = {name: (f"a {name} word", "en", 3) for name in ("common", "first", "second")}
    words = {name: text for name, (text, _, _) in texts.items()}
    made = []
    for task_id, names in enumerate([("common", "first"), ("common", "second")]):
        with stage.db.begin() as conn:
            some = {name: texts[name] for name in names}
            made.append(putting.put_chunks(conn, shelf.tenant, some, words, task_id))
    one, other = made
    assert one["common"] == other["common"]
    assert len({*one.values(), *other.values()}) == 3
    with stage.db.read() as conn:
        written = conn.exec_driver_sql("SELECT digest, task_id FROM chunks").all()
    assert sorted(map(tuple, written)) == [("common", 0), ("first", 0), ("second", 1)]
    for name, number in {**one, **other}.items():
        assert matching(shelf, name) == [number]


def scores(shelf: Shelf, query: str, tenant: str) -> list[float]:
    return [hit["score"] for hit in search(shelf.db, tenant, query, mode="text")["items"]]


def test_scores_of_a_tenant_do_not_tell_what_others_have(shelf: Shelf):
    for name, text in (("a", "zqxuniq alone"), ("b", "wombatium alone"), ("c", "other words")):
        shelf.file(name, text)
    query = "zqxuniq wombatium"
    before = scores(shelf, query, shelf.tenant)
    assert before[0] == before[1]
    victim = Shelf(shelf.stage, tenant="victim")
    for number in range(6):
        victim.file(f"v{number}", f"wombatium number {number}")
    assert scores(shelf, query, shelf.tenant) == before
    assert scores(shelf, "number", shelf.tenant) == []
    assert len(scores(victim, "wombatium", "victim")) == 6


def test_scores_of_the_other_tenant_do_not_tell_either(shelf: Shelf):
    other = Shelf(shelf.stage, tenant="other")
    other.file("a", "zqxuniq alone")
    other.file("b", "wombatium alone")
    before = scores(other, "zqxuniq wombatium", "other")
    for number in range(6):
        shelf.file(f"v{number}", f"wombatium number {number}")
    assert scores(other, "zqxuniq wombatium", "other") == before
    assert before[0] == before[1]
