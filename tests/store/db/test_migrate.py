"""Migrations: from nothing, once, by several at a time, and never backwards."""

from __future__ import annotations

import json
import struct
import subprocess
import sys

import psycopg
import pytest
import sqlalchemy as sa

from quire.errors import DatabaseUnavailable, SchemaAhead
from quire.store import open_database
from quire.store.db import dialect, migrate
from quire.store.db.migrations import m0015_words_by_tenant
from quire.store.db.schema.queue import metadata
from tests import blank

MIGRATE = """
import sys
from quire.store import open_database
db = open_database(sys.argv[1])
sys.stdin.readline()
print(db.migrate())
db.close()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request, tmp_path):
    """The URL of a database with nothing in it."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'deep' / 'er' / 'quire.db'}"
        return
    url = request.getfixturevalue("pg_url")
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("DROP SCHEMA public CASCADE")
        conn.execute("CREATE SCHEMA public")
    yield url


def test_an_empty_database_gets_every_table_and_index(empty_url):
    db = open_database(empty_url)
    assert db.migrate() == migrate.versions()
    with db.read() as conn:
        inspector = sa.inspect(conn)
        found = set(inspector.get_table_names())
        # SQLite's full-text index is a table with tables of its own; PostgreSQL's is a column.
        words = {name for name in found if name.startswith(("chunk_words", "document_entries"))}
        assert bool(words) == (db.path is not None)
        assert found - words == set(metadata.tables)
        for table in metadata.tables.values():
            there = {each["name"] for each in inspector.get_indexes(table.name)}
            assert {index.name for index in table.indexes} <= there
    db.close()


def test_migrating_again_changes_nothing(empty_url):
    db = open_database(empty_url)
    db.migrate()
    assert db.migrate() == []
    with db.read() as conn:
        assert migrate.check(conn) == 0
        assert migrate.version(conn) == migrate.versions()[-1]
    db.close()


def test_several_processes_that_migrate_at_once_apply_each_step_once(empty_url):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", MIGRATE, empty_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for each in started:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    outputs = [each.communicate(timeout=60) for each in started]
    assert [each.returncode for each in started] == [0] * 4, outputs
    # Each step is a transaction of its own, so different processes may apply different steps.
    applied = [step for out, _ in outputs for step in json.loads(out)]
    assert sorted(applied) == migrate.versions()


def test_a_schema_of_a_later_quire_is_refused_and_not_changed(db):
    with db.begin() as conn:
        conn.exec_driver_sql("UPDATE meta SET value = '9999' WHERE key = 'schema_version'")
    with pytest.raises(SchemaAhead, match="9999"):
        db.migrate()
    with pytest.raises(SchemaAhead), db.read() as conn:
        migrate.check(conn)
    with db.read() as conn:
        assert migrate.version(conn) == 9999


def test_an_empty_database_has_version_zero_and_misses_every_migration(empty_url, tmp_path):
    db = open_database(empty_url)
    if db.path is not None:
        db.path.parent.mkdir(parents=True)
        with pytest.raises(DatabaseUnavailable, match="unable to open"), db.read():
            pass
        assert not db.path.exists()  # nothing but a migration makes the file
        db.path.touch()
    with db.read() as conn:
        assert migrate.version(conn) == 0
        assert migrate.check(conn) == len(migrate.versions())
    db.close()


def test_a_database_of_an_earlier_quire_gets_the_index_of_active_jobs(db):
    with db.begin() as conn:
        conn.exec_driver_sql("DROP INDEX ix_jobs_active")
        conn.exec_driver_sql(
            "CREATE INDEX ix_jobs_active_owner ON jobs (owner_id) "
            "WHERE state IN ('pending', 'running')"
        )
        conn.exec_driver_sql("UPDATE meta SET value = '5' WHERE key = 'schema_version'")
    assert db.migrate() == migrate.versions()[5:]
    with db.read() as conn:
        there = {each["name"] for each in sa.inspect(conn).get_indexes("jobs")}
    assert "ix_jobs_active" in there and "ix_jobs_active_owner" not in there


def test_a_database_of_an_earlier_quire_gets_its_vectors_into_other_graphs(pg_url):
    """The column, the graph and the levels are made for rows that are there."""
    from quire.model.search import Model
    from quire.store.documents import pages
    from quire.store.search import vectors

    db = open_database(pg_url)
    with db.begin() as conn:
        model = Model(vectors.register(conn, "toy", 4), "toy", 4)
        ids = pages.put_chunks(conn, "default", {"a": ("a word", "en", 2)}, {"a": "a word"}, 1)
        point = struct.pack("4f", 1, 2, 3, 4)
        pages.put_vectors(conn, "default", model.id, {"a": point}, ids)
        # As version 6 had it: every vector in the graph at once, words in one index.
        conn.exec_driver_sql("ALTER TABLE vectors DROP COLUMN is_fresh")
        conn.exec_driver_sql(
            "CREATE INDEX ix_vectors_model_1 ON vectors USING hnsw "
            "((CAST(vector AS vector(4))) vector_cosine_ops) WHERE model_id = 1"
        )
        conn.exec_driver_sql("DROP INDEX ix_chunks_words_8, ix_chunks_words_64")
        conn.exec_driver_sql("UPDATE meta SET value = '6' WHERE key = 'schema_version'")
    assert db.migrate() == migrate.versions()[6:]
    with db.read() as conn:
        told = "SELECT indexdef FROM pg_indexes WHERE indexname = 'ix_vectors_model_1'"
        assert "is_fresh" in conn.exec_driver_sql(told).scalar_one()
        assert vectors.searcher(conn, "default", model, point).nearest(3).ranked[0][0] == ids["a"]
        there = {each["name"] for each in sa.inspect(conn).get_indexes("chunks")}
        assert {"ix_chunks_words", "ix_chunks_words_8", "ix_chunks_words_64"} <= there
        fresh = conn.exec_driver_sql("SELECT is_fresh FROM vectors").scalar_one()
    assert fresh is False
    db.close()


def test_what_was_wedged_is_stalled_after_the_migration(db):
    from quire.store.db.migrations import m0010_stalled
    from quire.store.db.schema.documents import generation_pages
    from quire.store.db.schema.queue import attempts

    row = {"task_id": 1, "attempt": 1, "finished_at": 1.0}
    page = {"document_id": 1, "generation": 1, "key": ""}
    with db.begin() as conn:
        conn.execute(sa.insert(attempts), {**row, "fence": 1, "outcome": "wedged"})
        conn.execute(sa.insert(attempts), {**row, "fence": 2, "outcome": "done"})
        why = {"kind": "wedged", "error": "the word wedged stays"}
        conn.execute(sa.insert(generation_pages), {**page, "number": 1, "error": json.dumps(why)})
        conn.execute(sa.insert(generation_pages), {**page, "number": 2, "error": None})
        m0010_stalled.up(conn)
    with db.read() as conn:
        outcomes = conn.scalars(sa.select(attempts.c.outcome).order_by(attempts.c.fence))
        assert outcomes.all() == ["stalled", "done"]
        errors = conn.scalars(
            sa.select(generation_pages.c.error).order_by(generation_pages.c.number)
        ).all()
    assert json.loads(errors[0]) == {**why, "kind": "stalled"}
    assert errors[1] is None


def test_jobs_that_are_stopped_get_who_stopped_them_from_their_last_event(db):
    from quire.store.db.migrations import m0013_stopped_by
    from quire.store.db.schema.queue import events, jobs, owners

    job = {"owner_id": 1, "kind": "noop", "priority": 5, "payload": "{}", "max_attempts": 1,
           "created_at": 1.0}  # fmt: skip
    with db.begin() as conn:
        conn.execute(sa.insert(owners), {"id": 1, "tenant": "default", "user_name": "ada"})
        for job_id, state in ((1, "stopped"), (2, "stopped"), (3, "cancelled")):
            conn.execute(sa.insert(jobs), {**job, "id": job_id, "state": state, "finished_at": 2.0})
        for job_id, told in ((1, {"by": "eve"}), (1, {"by": "bea", "why": "lunch"}), (3, {})):
            row = {"tenant": "default", "at": 2.0, "name": "job.stopped", "job_id": job_id}
            conn.execute(sa.insert(events), {**row, "detail": json.dumps(told)})
        m0013_stopped_by.up(conn)
    with db.read() as conn:
        found = conn.execute(sa.select(jobs.c.stopped_by, jobs.c.stopped_why).order_by(jobs.c.id))
        assert found.all() == [("bea", "lunch"), (None, None), (None, None)]


def test_a_common_index_of_words_is_divided_among_the_tenants(tmp_path):
    db = open_database(f"sqlite:///{blank.put(tmp_path)}")
    texts = {1: ("default", "cold water"), 2: ("acme", "They agreed on cold water"),
             3: ("other", "ponies drink water")}  # fmt: skip
    with db.begin() as conn:
        for number, (tenant, text) in texts.items():
            conn.exec_driver_sql(
                "INSERT INTO chunks (id, tenant, digest, language, text, tokens) "
                "VALUES (?, ?, ?, 'en', ?, 3)",
                (number, tenant, str(number), text),
            )
        everything = [(number, text) for number, (_, text) in texts.items()]
        dialect.index_texts(conn, "default", everything)  # as an earlier Quire did
        m0015_words_by_tenant.up(conn)
        for tenant, query, found in (
            ("default", "water", [1]),
            ("acme", "water", [2]),
            ("acme", "agreed", [2]),
            ("other", "pony AND water", [3]),
            ("other", "cold", []),
        ):
            index = dialect.words_table(tenant)
            rows = conn.exec_driver_sql(
                f"SELECT rowid FROM {index} WHERE {index} MATCH ?", (query,)
            )
            assert list(rows.scalars()) == found, (tenant, query)
    db.close()
