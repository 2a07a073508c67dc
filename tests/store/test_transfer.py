"""An embedded installation is moved into PostgreSQL whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quire.app import App
from quire.control import doctor
from quire.control.search import search
from quire.errors import Conflict, Damaged, Refused, Transferred
from quire.ingest import document_words
from quire.model.access import Role
from quire.model.records import Submission
from quire.settings import load
from quire.store import open_database
from quire.store.access import users
from quire.store.db import bulk, migrate, sqlite, transfer_markers
from quire.store.db.engine import Database
from quire.store.db.schema.queue import jobs
from quire.store.queue import metric_counters
from quire.store.transfer import copy as transfer_copy
from quire.store.transfer.rows import TABLES
from quire.text.words import tsvector_input
from tests.store.search.test_search import Toy
from tests.store.shelf import Shelf
from tests.store.stage import Stage, ending

NAME = "postgresql://ada:***@host/quire"
PAGES = ("Ships wait for the tide.\nThe moon pulls the sea.", "Der Lotse kennt die Häfen.")


class Installation:
    """An embedded database, and the PostgreSQL that it is to be moved to."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.source = open_database(f"sqlite:///{path}")
        self.source.migrate()
        self.stage = Stage(self.source)
        self.target = open_database(url, clock=self.stage.clock)
        self.steps: list[tuple[str, int, int]] = []

    def move(self, tell: transfer_copy.ReportProgress | None = None) -> transfer_copy.Transferred:
        """Let go of the file, as processes do that end, and move it."""
        self.source.close()
        tell = tell or (lambda *step: self.steps.append(step))
        done = transfer_copy.transfer(
            self.path, self.target, name=NAME, analyse=tsvector_input, report=tell
        )
        document_words.index_missing(self.target)  # as the command does
        return done

    def moved_stage(self) -> Stage:
        """The same stage on the copy: the clock goes on."""
        clock = self.stage.clock
        stage = Stage(self.target)
        stage.clock = self.target.clock = clock
        return stage

    def close(self) -> None:
        self.source.close()
        self.target.close()


def fill(to: Installation) -> None:
    """Make documents, and jobs in many states; two tasks are left running."""
    stage, shelf = to.stage, Shelf(to.stage)
    shelf.file("box/tides.txt", *PAGES, corpus="sea")
    shelf.file("box/tides.txt", *PAGES, "Barley and wool.", seen="later")
    stage.one()
    stage.run()
    stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "fail", "permanent", error="it broke\nbadly"))
    retried = stage.one()
    [lease] = stage.claim()
    stage.settle(ending(lease, "retry", "transient", error="again", due_in=50.0))
    stage.submit(Submission("slow", {"text": "ünï \U0001f600"}, after=(retried,)), user="eve")
    stage.many(20, user="bob", priority=3)
    stage.set_owner("bob", weight=2.0, max_running=3)
    stage.claim("w2", limit=2)
    shelf.queue("box/waiting.txt")
    stage.db.write(lambda conn, now: metric_counters.add(conn, "zombies", 3))
    stage.db.write(lambda conn, now: users.add_user(conn, "default", "ada", Role.ADMIN, now=now))


def dump(db: Database) -> dict[str, list[Any]]:
    """All rows that have to be the same on both sides."""
    own = {"xid", "expires_at", "vector"}
    found: dict[str, list[Any]] = {}
    with db.read() as conn:
        for table in TABLES:
            if table.name != "meta":
                columns = [column for column in table.c if column.name not in own]
                rows = conn.execute(sa.select(*columns)).all()
                found[table.name] = sorted((tuple(row) for row in rows), key=repr)
    return found


def cut_off_after(steps: int) -> transfer_copy.ReportProgress:
    """End a move as Ctrl-C would, behind some batch."""
    told = 0

    def tell(step: str, done: int, total: int) -> None:
        nonlocal told
        told += 1
        if told > steps:
            raise KeyboardInterrupt

    return tell


@pytest.fixture
def installation(tmp_path: Path, pg_url: str) -> Iterator[Installation]:
    made = Installation(tmp_path / "quire.db", pg_url)
    yield made
    made.close()


@pytest.fixture
def bare(installation: Installation) -> Installation:
    """One whose target has not even a schema."""
    with installation.target.begin() as conn:
        conn.exec_driver_sql("DROP SCHEMA public CASCADE")
        conn.exec_driver_sql("CREATE SCHEMA public")
    return installation


@pytest.fixture
def filled(installation: Installation) -> Installation:
    fill(installation)
    return installation


# --------------------------------------------------------------------- what is moved


def test_every_row_is_there_afterwards_and_every_invariant_holds(filled: Installation):
    before = dump(filled.source)
    done = filled.move()
    assert dump(filled.target) == before
    assert done.rows == {name: len(rows) for name, rows in before.items()} | {"meta": 1}
    assert all(
        done.rows[name] for name in ("jobs", "tasks", "edges", "attempts", "chunks", "vectors")
    )
    assert not done.is_resumed
    assert filled.steps[-1][0] == "build vector indexes"
    assert doctor.examine(filled.target).violations == []
    with filled.target.read() as conn:
        assert metric_counters.read(conn)["zombies"] == 3


def test_search_finds_the_same(filled: Installation):
    def hits(db: Database, mode: str, query: str) -> list[Any]:
        found = search(db, "default", query, mode=mode, embedder=lambda name: Toy())
        return [(hit["name"], hit["page"], hit["text"]) for hit in found["items"]]

    asked = [("text", "tides"), ("text", "Häfen"), ("text", "wool"), ("vector", PAGES[1])]
    before = [hits(filled.source, *each) for each in asked]
    assert all(before)
    filled.move()
    assert [hits(filled.target, *each) for each in asked] == before


def test_what_was_running_is_taken_back_and_its_old_holder_refused(installation: Installation):
    job_id = installation.stage.one()
    [old] = installation.stage.claim("w1")
    installation.move()
    stage = installation.moved_stage()
    assert stage.task(job_id).fence == old.fence
    stage.clock.advance(1)
    assert stage.reap() == [old.task_id]
    assert stage.settle(ending(old)) == set()
    [heir] = stage.claim("w3")
    assert heir.fence > old.fence
    assert stage.settle(ending(heir)) == {old.task_id}
    assert stage.job(job_id).state == "completed"
    stage.inspect()


def test_all_open_jobs_complete_on_the_other_side(filled: Installation):
    failed = {row.id for row in filled.stage.rows("jobs", state="failed")}
    filled.move()
    stage = filled.moved_stage()
    stage.clock.advance(100)
    stage.reap()
    for _ in range(20):
        stage.move_due()
        stage.run(worker="w9")
        stage.run(worker="w9", queue="slow")
    states = {row.id: row.state for row in stage.rows("jobs")}
    assert {i for i, state in states.items() if state != "completed"} == failed
    stage.inspect()


def test_ids_go_on_behind_those_that_were_ever_given(installation: Installation):
    stage = installation.stage
    stage.many(5)
    with installation.source.begin() as conn:
        for name in ("jobs", "tasks"):
            kept = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, '70')"
            conn.exec_driver_sql(kept, (f"last_id.{name}",))
        conn.exec_driver_sql("INSERT OR REPLACE INTO sqlite_sequence VALUES ('chunks', 90)")
    installation.move()
    after = installation.moved_stage()
    assert after.one() == 71
    assert after.rows("tasks", job_id=71)[0].id == 71
    Shelf(after).file("a.txt", "one line")
    assert [row.id for row in after.rows("chunks")] == [91]
    after.inspect()


def test_events_are_read_in_their_order(filled: Installation):
    order = [row.id for row in filled.stage.rows("events")]
    filled.move()
    with filled.target.read() as conn:
        found = conn.exec_driver_sql("SELECT id FROM events ORDER BY xid, id")
        assert [row[0] for row in found] == order


def test_what_only_sqlite_takes_is_made_storable(installation: Installation):
    job_id = installation.stage.one()
    with installation.source.begin() as conn:
        conn.exec_driver_sql("UPDATE jobs SET message = 'a' || char(0) || 'b', priority = 7")
    installation.move()
    assert installation.moved_stage().job(job_id).message == "a\ufffdb"


def test_tables_of_handlers_are_named_and_left(installation: Installation):
    with installation.source.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE effects (tag TEXT)")
    assert installation.move().not_copied == ["effects"]


# --------------------------------------------------------------------- cut off and gone on with


@pytest.mark.parametrize("steps", [0, 3, 9, 14, 30, 45])
def test_a_move_that_was_cut_off_goes_on_and_doubles_nothing(
    filled: Installation, steps: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transfer_copy, "BATCH_ROWS", 7)
    before = dump(filled.source)
    with pytest.raises(KeyboardInterrupt):
        filled.move(cut_off_after(steps))
    with (
        filled.target.read() as conn,
        pytest.raises(Refused, match="a transfer into it is not finished"),
    ):
        migrate.check(conn)
    done = filled.move()
    assert done.is_resumed
    assert dump(filled.target) == before
    assert doctor.examine(filled.target).violations == []


def test_a_source_that_changed_since_is_copied_anew(filled: Installation):
    with pytest.raises(KeyboardInterrupt):
        filled.move(cut_off_after(30))
    filled.stage.run(limit=1)
    before = dump(filled.source)
    assert not filled.move().is_resumed
    assert dump(filled.target) == before


def test_a_switch_that_was_cut_off_is_finished(
    filled: Installation, pg_url: str, monkeypatch: pytest.MonkeyPatch
):
    """The source is given up and the target not opened up yet: nobody can use either."""

    def killed(*given: Any) -> None:
        raise KeyboardInterrupt

    before = dump(filled.source)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(transfer_copy, "_open_target", killed)
        filled.move()
    for url in (f"sqlite:///{filled.path}", pg_url):
        with pytest.raises(Refused):
            App(load({}, home=filled.path.parent, database_url=url))
    assert filled.move().is_resumed
    assert dump(filled.target) == before
    App(load({}, home=filled.path.parent, database_url=pg_url)).close()


def test_a_difference_names_the_table_and_the_next_run_begins_anew(
    filled: Installation, monkeypatch: pytest.MonkeyPatch
):
    copy_rows = bulk.copy_rows

    def falsified(conn: Any, table: sa.Table, columns: Any, rows: Any) -> None:
        place = list(columns).index("message") if table.name == "jobs" else None
        copy_rows(
            conn,
            table,
            columns,
            [r if place is None else (*r[:place], "other", *r[place + 1 :]) for r in rows],
        )

    before = dump(filled.source)
    with monkeypatch.context() as patch:
        patch.setattr(bulk, "copy_rows", falsified)
        with pytest.raises(Damaged, match="table jobs: the copy differs from the source"):
            filled.move()
    with filled.source.read() as conn:
        assert migrate.check(conn) == 0
    assert not filled.move().is_resumed
    assert dump(filled.target) == before


# --------------------------------------------------------------------- what is refused


def test_the_old_database_refuses_and_names_the_other(filled: Installation):
    filled.move()
    for create in (True, False):
        with pytest.raises(Refused, match=r"transferred to postgresql://ada:\*\*\*@host/quire"):
            App(load({}, home=filled.path.parent), create=create)


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_no_job_is_confirmed_by_a_process_that_has_the_old_database_open(
    installation: Installation, journal: str, monkeypatch: pytest.MonkeyPatch
):
    """An idle process is not noticed: with a rollback journal, or after its pool was closed."""
    if journal == "delete":
        monkeypatch.setattr(sqlite, "is_wal_safe", lambda version: False)
    installation.source.close()
    idle = Stage(open_database(f"sqlite:///{installation.path}"))
    first = idle.one()
    with idle.db.read() as conn:
        assert conn.exec_driver_sql("PRAGMA journal_mode").scalar_one() == journal
    if journal == "wal":
        idle.db.close()
    transfer_copy.transfer(
        installation.path,
        installation.target,
        name=NAME,
        analyse=tsvector_input,
        report=lambda *step: None,
    )
    with pytest.raises(Transferred, match=r"transferred to postgresql://ada:\*\*\*@host/quire"):
        idle.one()
    for table in TABLES:
        with pytest.raises(Transferred), idle.db.begin() as conn:
            conn.exec_driver_sql(f"INSERT INTO {table.name} DEFAULT VALUES")
    with idle.db.read() as conn, pytest.raises(Transferred):
        migrate.check(conn)
    with installation.target.read() as conn:
        assert conn.scalars(sa.select(jobs.c.id)).all() == [first]
    idle.db.close()


def test_a_worker_that_has_the_old_database_open_ends_and_is_not_restarted(tmp_path: Path):
    home = tmp_path / "home"
    App(load({}, home=home)).close()
    command = [sys.executable, "-m", "quire", "worker"]
    environ = {**os.environ, "QUIRE_HOME": str(home), "QUIRE_HEARTBEAT_INTERVAL": "0.2"}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        try:
            next(line for line in worker.stderr if "worker.started" in line)
            db = open_database(f"sqlite:///{home / 'quire.db'}")
            with db.begin() as conn:
                transfer_markers.give_up_source(conn, NAME, TABLES)
            db.close()
            assert worker.wait(20) == Transferred.exit_code
            assert "worker.stopped" in worker.stderr.read()
        finally:
            worker.kill()


def test_a_second_move_is_refused(filled: Installation):
    filled.move()
    with pytest.raises(Refused, match="already"):
        filled.move()
    assert doctor.examine(filled.target).violations == []


def test_a_target_in_use_is_refused_and_left_alone(filled: Installation):
    other = filled.moved_stage()
    job_id = other.one()
    with pytest.raises(Refused, match="has rows"):
        filled.move()
    assert [row.id for row in other.rows("jobs")] == [job_id]
    with filled.source.read() as conn:
        assert migrate.check(conn) == 0


def test_no_job_is_confirmed_into_a_target_before_it_is_complete(filled: Installation, pg_url: str):
    """It would be lost: its rows are no copy, so the transfer would start over."""
    filled.target.migrate()
    idle = open_database(pg_url, clock=filled.stage.clock)
    with idle.read() as conn:
        assert migrate.check(conn) == 0
    with pytest.raises(KeyboardInterrupt):
        filled.move(cut_off_after(5))
    with pytest.raises(Transferred, match="not finished"):
        Stage(idle).one()
    for table in TABLES:
        with pytest.raises(Transferred), idle.begin() as conn:
            conn.exec_driver_sql(f"INSERT INTO {table.name} DEFAULT VALUES")
    assert filled.move().is_resumed
    there = len(dump(filled.target)["jobs"])
    Stage(idle).one()
    assert len(dump(idle)["jobs"]) == there + 1
    idle.close()


def test_a_half_done_copy_of_another_installation_is_refused(
    filled: Installation, tmp_path: Path, pg_url: str
):
    with pytest.raises(KeyboardInterrupt):
        filled.move(cut_off_after(5))
    other = Installation(tmp_path / "other.db", pg_url)
    with pytest.raises(Refused, match="copy of another database"):
        other.move()
    other.close()
    assert filled.move().is_resumed


@pytest.mark.parametrize("name", ["jobs", "meta"])
def test_a_target_with_a_table_of_somebody_else_is_refused(bare: Installation, name: str):
    with bare.target.begin() as conn:
        conn.exec_driver_sql(f"CREATE TABLE {name} (title TEXT)")
    with pytest.raises(Refused, match=f"its table {name} is not Quire's"):
        bare.move()
    with bare.target.read() as conn:
        assert sa.inspect(conn).get_table_names() == [name]


def test_an_empty_target_gets_the_schema(bare: Installation):
    fill(bare)
    before = dump(bare.source)
    bare.move()
    assert dump(bare.target) == before


def test_a_file_that_another_has_open_is_refused(
    filled: Installation, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite, "EXCLUSIVE_WAIT_SECONDS", 0.05)
    idle = open_database(f"sqlite:///{filled.path}")
    with idle.read() as conn:
        conn.exec_driver_sql("SELECT 1 FROM meta")
    with pytest.raises(Conflict, match="open in another Quire process"):
        filled.move()
    idle.close()
    filled.move()


def test_nobody_reads_or_writes_the_source_meanwhile(filled: Installation):
    module = sqlite.sqlite_module()
    tries = 0

    def tell(step: str, done: int, total: int) -> None:
        nonlocal tries
        tries += 1
        with contextlib.closing(module.connect(str(filled.path), timeout=0)) as other:
            for statement in ("SELECT count(*) FROM meta", "DELETE FROM meta"):
                with pytest.raises(module.OperationalError, match="locked"):
                    other.execute(statement)

    filled.move(tell)
    assert tries > 30
