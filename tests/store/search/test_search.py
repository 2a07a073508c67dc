"""Search sees live documents only, filters them, and answers the same on both databases."""

from __future__ import annotations

import json
import logging
import re
import struct
import threading
from typing import Any

import pytest
import sqlalchemy as sa

from quire.control.search import search
from quire.errors import BadInput, NotFound, Refused, Transient
from quire.model.search import Model
from quire.store.db.schema.documents import documents, generations, models, pages
from quire.store.db.schema.documents import vectors as vector_rows
from quire.store.search import exact_scan, vectors
from quire.store.search import search as store
from quire.text import rank
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
    assert sorted(hits(shelf, "line")) == [("a", 1), ("a", 1), ("b", 1)]


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
    from quire.store.search import fulltext

    monkeypatch.setattr(fulltext, "COMMON_CHUNKS", 3)
    for n in range(6):
        shelf.file(f"c{n}", f"common words of number {n}")
    shelf.file("rare", "a rare and common thing")
    found = hits(shelf, "rare common")
    assert found[0] == ("rare", 1)
    assert len(found) == 7
    assert hits(shelf, "rare common", limit=1) == [("rare", 1)]
    assert len(hits(shelf, "common words")) == 7


def test_the_few_with_a_rare_word_are_found_among_too_many_with_a_common_one(
    shelf: Shelf, monkeypatch
):
    from quire.store.search import fulltext

    monkeypatch.setattr(fulltext, "COMMON_CHUNKS", 3)
    shelf.file("rare", "a rare and common thing")
    for n in range(20):
        shelf.file(f"c{n}", f"common words of number {n}")
    # Only the latest matches are scored on SQLite, and the rare one is the oldest.
    stages = fulltext._stages

    def few_scored(*given: Any):
        return (each._replace(most=12) if each.is_last else each for each in stages(*given))

    monkeypatch.setattr(fulltext, "_stages", few_scored)
    assert hits(shelf, "rare common")[0] == ("rare", 1)


def test_a_word_that_is_nowhere_does_not_hide_chunks_with_all_the_others(shelf: Shelf, monkeypatch):
    from quire.store.search import fulltext

    monkeypatch.setattr(fulltext, "COMMON_CHUNKS", 3)
    for n in range(6):
        shelf.file(f"a{n}", f"alpha stands alone here {n}")
        shelf.file(f"b{n}", f"beta stands alone here {n}")
    shelf.file("both", "alpha and beta stand together in a longer line than those")
    assert hits(shelf, "alpha beta nowhere", limit=1) == [("both", 1)]
    assert hits(shelf, "nowhere neither") == []


def test_words_that_most_chunks_have_are_required_but_not_weighed(shelf: Shelf, monkeypatch):
    from quire.store.search import fulltext

    monkeypatch.setattr(fulltext, "COMMON_CHUNKS", 3)
    monkeypatch.setattr(fulltext, "MAX_WEIGHTLESS_TERMS", 2)
    shelf.file("all", "north east south west harbour")
    for n in range(9):
        shelf.file(f"n{n}", f"north east south number {n}")
    for n in range(4):
        shelf.file(f"h{n}", f"a harbour harbour {n}")
    # Three words are in most chunks; the one that is not decides, and all have to be there.
    assert hits(shelf, "north east south harbour", limit=1) == [("all", 1)]
    found = hits(shelf, "north east south", limit=5)
    assert len(found) == 5
    assert not any(name.startswith("h") for name, _ in found)
    shelf.file("law", "north east south harbour of law", corpus="law")
    assert hits(shelf, "north east south harbour", limit=1, corpus="law") == [("law", 1)]


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
    from quire.store.search import fulltext
    from quire.text import words

    plain, simple = (words.query_terms(query, ["de", "zh"], simple=s) for s in (False, True))
    asked = QueryTerms(
        tuple(words.fts5_query([forms]) for forms in plain),
        tuple(words.tsquery([forms]) for forms in simple),
    )

    def score(texts, frequencies, total):
        return rank.bm25_scores(texts, simple, frequencies, total)

    with shelf.db.read() as conn:
        found = fulltext.matches(conn, shelf.tenant, asked, 10, None, enough=10, score=score)
    return [i for i, _ in found.ranked]


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
    monkeypatch.setattr(rank, "CANDIDATES", 1)  # so that the indexes are asked a second time
    for how in NARROW:
        for plan in plans(full, limit=20, **how):
            assert not re.search(rf"SCAN {WIDE}\b(?!.*USING)", plan), plan
            assert not re.search(f"Seq Scan on {WIDE}", plan), plan


def test_candidates_are_looked_up_from_the_chunk_on(full: Stage):
    """Without statistics SQLite would rather begin with all documents of the tenant."""
    if full.is_postgres:
        return
    for how in NARROW:
        if "documents" in how:  # the index is asked for these at once
            continue
        asked = [plan for plan in plans(full, **how) if "SCAN ids" in plan]
        assert len(asked) == 3  # by words, by vectors, and where they stand
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
        asked = [each for each in sent if "bm25" in each]
        assert asked
        assert all("json_each" in each and "slices" not in each for each in asked)


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
