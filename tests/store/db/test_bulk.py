"""Bulk inserts store every value as it is, however many rows there are."""

from __future__ import annotations

import pytest

from quire.store.db import bulk
from quire.store.db.engine import Database
from quire.store.db.schema.queue import bands, events, meta

TEXTS = [
    "",
    "\\N",
    "\\.",
    "a\tb",
    "a\nb",
    "a\r\nb",
    "\\",
    "\\\\n",
    '"',
    "ä \U0001f600",
    "\x01\x7f",
    "NULL",
]


@pytest.mark.parametrize("count", [1, 40, 1_500])
def test_texts_are_stored_as_they_are(db: Database, count: int):
    rows = [(f"t{n}", TEXTS[n % len(TEXTS)]) for n in range(count)]
    with db.begin() as conn:
        bulk.bulk_insert(conn, meta, ("key", "value"), rows)
        found = conn.exec_driver_sql("SELECT key, value FROM meta WHERE key LIKE 't%%'").all()
    assert dict(map(tuple, found)) == dict(rows)


@pytest.mark.parametrize("count", [3, 1_500])
def test_columns_with_equal_values_or_without_any_are_stored(db: Database, count: int):
    rows = [(None, 1.5, n if n % 2 else None, None, "same", "x\ty") for n in range(count)]
    columns = ("xid", "at", "job_id", "task_id", "name", "detail")
    with db.begin() as conn:
        bulk.bulk_insert(conn, events, columns, rows)
        query = f"SELECT {', '.join(columns)} FROM events WHERE name = 'same' ORDER BY id"
        assert list(map(tuple, conn.exec_driver_sql(query))) == rows


@pytest.mark.parametrize("count", [3, 1_500])
def test_numbers_keep_every_digit(db: Database, count: int):
    rows = [("q", n, n / 7 * 1e9) for n in range(count)]
    with db.begin() as conn:
        bulk.bulk_insert(conn, bands, ("queue", "priority", "claimed_tag"), rows)
        found = conn.exec_driver_sql("SELECT queue, priority, claimed_tag FROM bands")
        assert sorted(map(tuple, found)) == rows
