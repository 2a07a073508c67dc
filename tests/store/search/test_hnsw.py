"""On PostgreSQL vectors get into their graph behind the commit, and are found before that too."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from quire.model.search import Model
from quire.store.documents import pages
from quire.store.search import hnsw, vectors
from quire.store.search.chunk_filter import ChunkFilter
from quire.store.search.hnsw import HnswIndexer
from tests import plans
from tests.store.shelf import Shelf
from tests.store.stage import Stage
from tests.waiting import until

TOY = Model(1, "toy", 8)


def written(shelf: Shelf, count: int, seed: int = 1) -> dict[int, list[float]]:
    """Store chunks with vectors that point anywhere."""
    dice = random.Random(seed)
    points = {f"{seed}-{n}": [dice.gauss(0, 1) for _ in range(8)] for n in range(count)}
    with shelf.db.begin() as conn:
        model_id = vectors.register(conn, TOY.name, TOY.dimensions)
        texts = {name: (name, "en", 1) for name in points}
        ids = pages.put_chunks(conn, shelf.tenant, texts, {name: name for name in points}, 1)
        packed = {name: struct.pack("8f", *point) for name, point in points.items()}
        pages.put_vectors(conn, shelf.tenant, model_id, packed, ids)
    return {ids[name]: point for name, point in points.items()}


def nearest(shelf: Shelf, point: list[float], limit: int = 10) -> list[tuple[int, float]]:
    with shelf.db.read() as conn:
        query = struct.pack("8f", *point)
        return vectors.searcher(conn, shelf.tenant, TOY, query).nearest(limit).ranked


def fresh(shelf: Shelf) -> int:
    with shelf.db.read() as conn:
        query = "SELECT count(*) FROM vectors WHERE is_fresh"
        return int(conn.exec_driver_sql(query).scalar_one())


@pytest.fixture
def shelf(pg_stage: Stage) -> Shelf:
    return Shelf(pg_stage)


def test_a_vector_is_found_the_same_before_and_after_it_is_in_the_graph(shelf: Shelf):
    points = written(shelf, 150)
    asked = list(points.values())[:12]
    before = [nearest(shelf, point) for point in asked]
    assert [found[0][0] for found in before] == list(points)[:12]
    assert fresh(shelf) == 150
    assert HnswIndexer(shelf.db).round() == 150
    assert fresh(shelf) == 0
    after = [nearest(shelf, point) for point in asked]
    assert [[i for i, _ in found] for found in after] == [[i for i, _ in found] for found in before]
    assert [found[0][1] for found in after] == pytest.approx([1.0] * 12)


def test_what_the_graph_has_and_what_is_fresh_is_one_ranking(shelf: Shelf):
    points = written(shelf, 100)
    HnswIndexer(shelf.db).round()
    points |= written(shelf, 100, seed=2)
    assert fresh(shelf) == 100
    point = next(iter(points.values()))
    found = nearest(shelf, point, limit=40)
    with shelf.db.read() as conn:
        query = {"query": struct.pack("8f", *point), "limit": 40}
        exact = conn.execute(vectors._exact(conn, TOY, None), query).all()
    assert [score for _, score in found] == pytest.approx([1.0 - row.distance for row in exact])


def test_a_round_ends_when_its_time_is_over_and_the_next_goes_on(shelf: Shelf):
    written(shelf, hnsw.BATCH_VECTORS + 6)
    settler = HnswIndexer(shelf.db)
    assert settler.round(seconds=0.0) == hnsw.BATCH_VECTORS
    assert settler.has_more
    assert settler.round() == 6
    assert not settler.has_more
    assert settler.round() == 0


def test_vectors_behind_the_settlers_place_are_not_forgotten(shelf: Shelf):
    settler = HnswIndexer(shelf.db)
    written(shelf, 10)
    assert settler.round() == 10
    with shelf.db.begin() as conn:  # as where chunks that were there get vectors later
        conn.exec_driver_sql("UPDATE vectors SET is_fresh = true WHERE chunk_id < 5")
    again = fresh(shelf)
    assert again > 0
    assert settler.round() == again


def test_two_settlers_never_wait_for_each_other(shelf: Shelf):
    written(shelf, 20)
    with shelf.db.begin() as conn:
        first = hnsw.index_fresh(conn, limit=12)
        with shelf.db.begin() as other:
            other.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
            second = hnsw.index_fresh(other, limit=20)
    assert (len(first), len(second)) == (12, 8)
    assert not set(first) & set(second)


def test_vectors_too_wide_for_a_graph_are_compared_one_by_one(shelf: Shelf):
    wide = Model(1, "wide", hnsw.MAX_DIMENSIONS + 1)
    point = struct.pack(f"{wide.dimensions}f", *[1.0] * wide.dimensions)
    with shelf.db.begin() as conn:
        model_id = vectors.register(conn, wide.name, wide.dimensions)
        ids = pages.put_chunks(conn, shelf.tenant, {"a": ("a", "en", 1)}, {"a": "a"}, 1)
        pages.put_vectors(conn, shelf.tenant, model_id, {"a": point}, ids)
    for _ in range(2):
        with shelf.db.read() as conn:
            found = vectors.searcher(conn, shelf.tenant, wide, point).nearest(3).ranked
        assert [i for i, _ in found] == [ids["a"]]
        HnswIndexer(shelf.db).round()


def test_the_graph_and_the_fresh_vectors_are_read_along_their_indexes(shelf: Shelf):
    from quire.store.db import dialect

    written(shelf, 300)
    HnswIndexer(shelf.db).round()
    written(shelf, 20, seed=2)
    with shelf.db.read() as conn:
        vectors._set_search_parameters(conn, 10)
        given = {"query": dialect.vector_text(struct.pack("8f", *range(1, 9))), "limit": 10}
        plan = plans.explain(conn, vectors._nearest(TOY), given)
    assert "Index Scan using ix_vectors_model_1" in plan, plan
    assert "using ix_vectors_fresh" in plan, plan
    assert "Seq Scan" not in plan, plan


def test_on_sqlite_there_is_nothing_to_settle(stage: Stage):
    if stage.is_postgres:
        return
    settler = HnswIndexer(stage.db)
    assert settler.round() == 0
    assert not settler.has_more


def test_a_walk_begun_ahead_sees_the_moment_of_the_one_who_asked(shelf: Shelf):
    points = written(shelf, 30)
    query = struct.pack("8f", *next(iter(points.values())))
    with shelf.db.read() as conn:
        at_once = vectors.searcher(conn, shelf.tenant, TOY, query).nearest(20).ranked
        ahead = vectors.searcher(conn, shelf.tenant, TOY, query)
        with shelf.db.begin() as other:
            other.exec_driver_sql("DELETE FROM vectors")
        ahead.begin(20)
        assert ahead.nearest(20).ranked == at_once
        assert ahead.nearest(5).ranked == at_once[:5]
        assert ahead.nearest(30).ranked[:20] == at_once  # more than was begun is asked for anew


def test_a_list_of_chunks_is_compared_ahead_and_no_other_list_is_answered_by_it(shelf: Shelf):
    points = written(shelf, 30)
    query = struct.pack("8f", *next(iter(points.values())))
    ids = sorted(points)
    some, others = (
        ChunkFilter.from_array(f"{{{','.join(map(str, each))}}}") for each in (ids[::2], ids[1::2])
    )
    with shelf.db.read() as conn:
        at_once = vectors.searcher(conn, shelf.tenant, TOY, query).nearest(20, some).ranked
        ahead = vectors.searcher(conn, shelf.tenant, TOY, query)
        with shelf.db.begin() as other:
            other.exec_driver_sql("DELETE FROM vectors")
        ahead.begin(20, some)
        assert {chunk for chunk, _ in ahead.nearest(20, some).ranked} == set(ids[::2])
        assert ahead.nearest(20, some).ranked == at_once
        assert {chunk for chunk, _ in ahead.nearest(20, others).ranked} == set(ids[1::2])


WAITING = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def test_only_a_few_walks_are_begun_ahead_at_once(shelf: Shelf):
    """Each search holds a connection of the pool; its walk must not wait for the last one."""
    points = written(shelf, 30)
    query = struct.pack("8f", *next(iter(points.values())))
    with shelf.db.read() as conn, lock(shelf):
        looking = [vectors.searcher(conn, shelf.tenant, TOY, query) for _ in range(6)]
        for each in looking:
            each.begin(10)
        until(lambda: told(shelf, f"SELECT count(*) {WAITING}") == 3)
        pool = shelf.db.engine.pool
        assert isinstance(pool, sa.QueuePool)
        assert pool.checkedout() == 5  # the search, the lock, and three walks
    with shelf.db.read() as conn:
        assert vectors.searcher(conn, shelf.tenant, TOY, query).nearest(1).ranked


def test_a_walk_whose_session_is_cut_is_made_by_the_one_who_asked(shelf: Shelf):
    points = written(shelf, 30)
    point = next(iter(points.values()))
    at_once = nearest(shelf, point)
    with shelf.db.read() as conn:
        ahead = vectors.searcher(conn, shelf.tenant, TOY, struct.pack("8f", *point))
        with lock(shelf):
            ahead.begin(10)
            cut = f"SELECT count(pg_terminate_backend(pid)) {WAITING}"
            until(lambda: told(shelf, cut) == 1)
        assert ahead.nearest(10).ranked == at_once


def told(shelf: Shelf, query: str) -> int:
    """Ask in a transaction of its own: within one, activity is always that of the first look."""
    with shelf.db.begin() as conn:
        return int(conn.exec_driver_sql(query).scalar_one())


@contextlib.contextmanager
def lock(shelf: Shelf) -> Iterator[None]:
    """Keep everyone who has not begun to read vectors from it."""
    with shelf.db.begin() as conn:
        conn.exec_driver_sql("LOCK TABLE vectors IN ACCESS EXCLUSIVE MODE NOWAIT")
        yield
