"""A shared transaction on SQLite keeps what a transaction of one's own would."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from quire.control import jobs as verbs
from quire.errors import DatabaseUnavailable
from quire.model.records import Submission
from quire.store import open_database
from quire.store.db import plain_submit, sqlite
from tests.store.stage import Stage


def test_a_file_put_in_the_place_of_ours_gets_the_job(sqlite_stage: Stage):
    stage = sqlite_stage
    path = stage.db.path
    assert path is not None
    stage.one()
    with stage.db.read() as conn:  # all of it is in the file, so that the copy is whole
        conn.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink()
    copy.replace(path)
    job_id = stage.one()
    with closing(open_database(f"sqlite:///{path}")) as other:
        assert Stage(other).job(job_id).state == "pending"


def test_who_waits_can_tell_which_process_has_the_write_lock(
    sqlite_stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    stage, seen = sqlite_stage, []
    stage.one()
    assert stage.db.path is not None
    note = stage.db.path.with_name(stage.db.path.name + ".writer")
    inserted = plain_submit._insert

    def insert(*given: Any) -> Any:
        seen.append(int.from_bytes(note.read_bytes()[:8], "little"))
        return inserted(*given)

    monkeypatch.setattr(plain_submit, "_insert", insert)
    stage.one()
    assert seen == [os.getpid()]
    assert int.from_bytes(note.read_bytes()[:8], "little") == 0


def test_a_lock_that_is_not_got_is_told_to_every_thread(tmp_path: Path):
    db = open_database(f"sqlite:///{tmp_path / 'quire.db'}", lease_seconds=2)
    with closing(db):
        db.migrate()
        stage = Stage(db)
        stage.one()
        with (
            closing(sqlite.sqlite_module().connect(db.path)) as holder,
            ThreadPoolExecutor(3) as pool,
        ):
            holder.execute("BEGIN IMMEDIATE")
            made = [pool.submit(stage.one) for _ in range(3)]
            errors = [each.exception() for each in made]
        assert [type(each) for each in errors] == [DatabaseUnavailable] * 3
        assert stage.one() and stage.count("jobs") == 2


#: Submits a job and dies, like a process of which nothing is left, at a step of its transaction.
DIES = """
import os, signal, sys
from quire.control import jobs
from quire.control.caller import Caller
from quire.model.records import Submission
from quire.store import open_database
from quire.store.db import group_commit, plain_submit
from tests.store.stage import KINDS

url, step = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

class Dying:
    def __init__(self, cursor):
        self.cursor = cursor

    def execute(self, text, *given):
        if text.startswith(step):
            die()
        return self.cursor.execute(text, *given)

inserted = plain_submit._insert
plain_submit._insert = lambda db, cursor, new: inserted(db, Dying(cursor), new)
if step == "flush":
    group_commit._flush = die
caller = Caller(open_database(url), tenant="default", user="ada", policy="all", known=lambda: KINDS)
jobs.submit(caller, [jobs.Submission("noop")] * 2, key="k")
"""


@pytest.mark.parametrize("step", ["INSERT INTO jobs", "INSERT INTO tasks", "flush"])
def test_a_submission_whose_process_was_killed_is_there_whole_or_not_at_all(
    sqlite_stage: Stage, step: str
):
    stage = sqlite_stage
    stage.one()
    died = subprocess.run([sys.executable, "-c", DIES, stage.db.url, step])
    assert died.returncode == -signal.SIGKILL
    assert stage.count("jobs") == stage.count("tasks") == (3 if step == "flush" else 1)
    ids = verbs.submit(stage.caller(), [Submission("noop")] * 2, key="k")
    assert [row.id for row in stage.rows("jobs")][1:] == ids
    assert len(stage.run()) == 3
