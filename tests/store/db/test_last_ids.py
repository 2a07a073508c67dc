"""Ids are not used again, whichever rows were deleted."""

from __future__ import annotations

import pytest

from quire.control import jobs as verbs
from quire.model.records import Submission
from tests.store.stage import Stage


def delete(stage: Stage, ids: list[int]) -> None:
    verbs.cancel(stage.caller(), ids)
    assert verbs.delete(stage.caller(), ids) == ids


@pytest.mark.parametrize("count", [1, 2], ids=["short-path", "general-path"])
def test_the_id_of_a_deleted_last_job_is_not_used_again(stage: Stage, count: int):
    first = stage.many(3)
    tasks = max(row.id for row in stage.rows("tasks"))
    delete(stage, first[1:])
    delete(stage, first[:1])  # the table is empty
    assert stage.rows("jobs") == stage.rows("tasks") == []
    again = stage.submit(*[Submission("noop")] * count)
    assert min(again) > max(first)
    assert min(row.id for row in stage.rows("tasks")) > tasks


def test_deleting_other_than_the_last_row_keeps_the_ids_going(stage: Stage):
    first = stage.many(4)
    delete(stage, first[:2])
    assert stage.one() > first[-1]


def test_the_counter_of_an_earlier_release_is_respected(sqlite_stage: Stage):
    with sqlite_stage.db.begin() as conn:
        for table in ("jobs", "tasks"):
            conn.exec_driver_sql(f"DROP TRIGGER {table}_last_id")
            conn.exec_driver_sql("INSERT INTO meta VALUES (?, '70')", (f"last_id.{table}",))
        conn.exec_driver_sql("UPDATE meta SET value = '15' WHERE key = 'schema_version'")
    sqlite_stage.db.migrate()
    assert sqlite_stage.one() == 71
    assert sqlite_stage.one() == 72
    delete(sqlite_stage, [72])
    assert sqlite_stage.one() == 73
