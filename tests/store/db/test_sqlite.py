"""The embedded database in trouble: deleted, locked, read-only, full, or on an unsafe engine."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa

from quire.errors import DatabaseUnavailable
from quire.store import open_database
from quire.store.db import engine, sqlite
from quire.store.db.engine import Database
from tests.store.stage import Stage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "quire.db"


@pytest.fixture
def here(path: Path) -> Iterator[Stage]:
    db = open_database(f"sqlite:///{path}")
    db.migrate()
    yield Stage(db)
    db.close()


@contextlib.contextmanager
def other_process(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python process of ours that runs `script`; ended when the block is."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[3],
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def other_connection(path: Path) -> contextlib.closing[Any]:
    """A connection that is not one of ours, made by the same library: locks are per process."""
    module = sqlite.sqlite_module()
    return contextlib.closing(module.connect(str(path), isolation_level=None))


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_the_database_is_in_wal_mode_and_synchronous(here: Stage):
    with here.db.read() as conn:
        assert conn.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert conn.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert conn.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_a_deleted_file_is_put_back_and_nothing_is_lost(here: Stage, path: Path):
    before = here.many(3)
    for each in path.parent.glob("quire.db*"):
        each.unlink()
    with pytest.raises(DatabaseUnavailable, match="restored from the open file"):
        here.one()
    assert path.exists()
    after = here.one()
    assert [row.id for row in here.rows("jobs")] == [*before, after]
    here.inspect()
    with other_connection(path) as fresh:
        assert fresh.execute("SELECT count(*) FROM jobs").fetchone() == (4,)


def test_a_deleted_folder_is_put_back_too(tmp_path: Path):
    folder = tmp_path / "home"
    folder.mkdir()
    db = open_database(f"sqlite:///{folder / 'quire.db'}")
    db.migrate()
    stage = Stage(db)
    job_id = stage.one()
    for each in folder.iterdir():
        each.unlink()
    folder.rmdir()
    with pytest.raises(DatabaseUnavailable):
        stage.one()
    assert stage.run() == [job_id]
    db.close()


def test_every_open_connection_sees_the_file_that_was_put_back(here: Stage, path: Path):
    here.one()
    with here.db.read() as one, here.db.read() as two:  # two connections in the pool
        assert one.exec_driver_sql("SELECT 1").scalar() == two.exec_driver_sql("SELECT 1").scalar()
    path.unlink()
    with pytest.raises(DatabaseUnavailable):
        here.one()
    here.one()
    with here.db.read() as one, here.db.read() as two:
        counts = [conn.exec_driver_sql("SELECT count(*) FROM jobs").scalar() for conn in (one, two)]
    assert counts == [2, 2]


OTHER_WRITER = """
    import sys
    from quire.errors import DatabaseUnavailable
    from quire.store import open_database
    from tests.store.stage import Stage
    stage = Stage(open_database(f"sqlite:///{sys.argv[1]}"))
    print(stage.one(), flush=True)
    for line in sys.stdin:
        while True:
            try:
                print(stage.one(), flush=True)
                break
            except DatabaseUnavailable as error:
                print(error, file=sys.stderr)
"""


def test_two_processes_whose_file_was_deleted_go_on_with_one_and_the_same(here: Stage, path: Path):
    with other_process(OTHER_WRITER, path) as other:
        ids = [here.one(), int(line_of(other)), here.one()]
        path.unlink()
        with pytest.raises(DatabaseUnavailable):
            here.one()
        tell(other)
        ids += [int(line_of(other)), here.one()]
        tell(other)
        ids += [int(line_of(other)), here.one()]
    assert [row.id for row in here.rows("jobs")] == sorted(ids)
    assert len(set(ids)) == len(ids) == 7
    here.inspect()


def test_a_process_that_only_reads_sees_the_file_that_was_put_back(here: Stage, path: Path):
    reader = open_database(f"sqlite:///{path}")

    def count() -> int:
        with reader.read() as conn:
            return int(conn.exec_driver_sql("SELECT count(*) FROM jobs").scalar_one())

    here.one()
    assert count() == 1
    path.unlink()
    with pytest.raises(DatabaseUnavailable):
        here.one()
    here.one()
    assert count() == 2
    reader.close()


def test_a_file_put_in_the_place_of_ours_is_used_from_then_on(
    here: Stage, path: Path, tmp_path: Path
):
    here.one()
    other = open_database(f"sqlite:///{tmp_path / 'other.db'}")
    other.migrate()
    Stage(other).many(5)
    other.close()
    for each in path.parent.glob("quire.db-*"):
        each.unlink()
    (tmp_path / "other.db").rename(path)
    here.one()
    assert here.count("jobs") == 6


def test_a_database_locked_past_our_patience_is_unavailable_and_then_goes_on(
    here: Stage, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.05)
    with other_connection(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseUnavailable, match="locked"):
            here.one()
        assert here.count("jobs") == 0  # reading goes on meanwhile
        other.execute("ROLLBACK")
    assert here.one()


def test_a_full_disk_is_unavailable_and_nothing_of_the_transaction_is_written(here: Stage):
    job_id = here.one()
    with here.db.read() as conn:
        pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
    here.db.close()

    @sa.event.listens_for(here.db.engine, "connect")
    def fill(driver: Any, _: Any) -> None:
        driver.execute(f"PRAGMA max_page_count = {pages + 2}")

    with pytest.raises(DatabaseUnavailable, match="full"):
        here.many(2000, payload={"x": "y" * 500})
    sa.event.remove(here.db.engine, "connect", fill)
    here.db.close()
    assert [row.id for row in here.rows("jobs")] == [job_id]
    assert here.many(2000, payload={"x": "y" * 500})  # on the fresh connection there is room
    here.inspect()


def test_a_read_only_database_is_unavailable_for_writing(here: Stage):
    here.one()
    here.db.close()

    @sa.event.listens_for(here.db.engine, "connect")
    def read_only(driver: Any, _: Any) -> None:
        driver.execute("PRAGMA query_only = on")

    with pytest.raises(DatabaseUnavailable, match=r"read-?only"):
        here.one()
    assert here.count("jobs") == 1


def test_a_file_that_is_not_a_database_is_unavailable(tmp_path: Path):
    (tmp_path / "quire.db").write_bytes(b"not a database " * 100)
    with pytest.raises(DatabaseUnavailable, match="not a database"):
        open_database(f"sqlite:///{tmp_path / 'quire.db'}").migrate()


def test_a_folder_that_cannot_be_opened_is_unavailable(tmp_path: Path):
    (tmp_path / "quire.db").mkdir()
    with pytest.raises(DatabaseUnavailable, match="unable to open"):
        open_database(f"sqlite:///{tmp_path / 'quire.db'}").migrate()


FROZEN_HOLDER = """
    import os, signal, sys
    from quire.store import open_database
    db = open_database(f"sqlite:///{sys.argv[1]}")
    with db.begin() as conn:
        conn.exec_driver_sql("INSERT INTO meta (key, value) VALUES ('frozen', 'write')")
        print("holding", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
"""


def wait_until_frozen(pid: int) -> None:
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        pass


def test_a_process_of_ours_that_holds_the_write_lock_for_longer_than_a_lease_is_killed(
    here: Stage, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.05)
    with other_process(FROZEN_HOLDER, path) as holder:
        assert line_of(holder) == "holding"
        wait_until_frozen(holder.pid)
        with pytest.raises(DatabaseUnavailable):
            here.one()  # its time is not over yet
        assert holder.poll() is None
        here.db.lease_seconds = 0.0
        with pytest.raises(DatabaseUnavailable):
            here.one()
        assert holder.wait(30) == -signal.SIGKILL
    assert here.one()
    assert here.rows("meta", key="frozen") == []


SLOW_MIGRATION = """
    import sys
    from quire.store import open_database
    from quire.store.db import migrate
    apply = migrate._apply
    def slow(conn, module, step):
        print("migrating", flush=True)
        sys.stdin.readline()
        apply(conn, module, step)
    migrate._apply = slow
    db = open_database(f"sqlite:///{sys.argv[1]}")
    with db.begin() as conn:
        conn.exec_driver_sql(
            "UPDATE meta SET value = CAST(value AS INTEGER) - 1 WHERE key = 'schema_version'"
        )
    print(len(db.migrate()), flush=True)
"""


def test_a_migration_is_not_killed_by_those_who_wait_for_it(
    here: Stage, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.05)
    with other_process(SLOW_MIGRATION, path) as migrating:
        assert line_of(migrating) == "migrating"
        here.db.lease_seconds = 0.0
        for _ in range(3):
            with pytest.raises(DatabaseUnavailable, match="locked"):
                here.one()
        tell(migrating)
        assert line_of(migrating) == "1"
    here.db.lease_seconds = engine.LEASE_SECONDS
    assert here.one()


def test_a_stranger_that_holds_the_write_lock_is_not_killed(
    here: Stage, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.05)
    here.db.lease_seconds = 0.0
    script = """
        import sqlite3, sys
        other = sqlite3.connect(sys.argv[1], isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        print("holding", flush=True)
        sys.stdin.readline()
        print("alive", flush=True)
    """
    with other_process(script, path) as stranger:
        assert line_of(stranger) == "holding"
        with pytest.raises(DatabaseUnavailable):
            here.one()
        tell(stranger)
        assert line_of(stranger) == "alive"


def test_a_note_of_an_earlier_life_of_a_pid_kills_nobody(
    here: Stage, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.05)
    here.db.lease_seconds = 0.0
    here.one()
    waiting = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    bystander = subprocess.Popen(waiting, stdin=subprocess.PIPE)
    try:
        note = path.with_name("quire.db.writer")
        note.write_bytes(sqlite._HOLDER.pack(bystander.pid, b"12345", 0.0))
        with other_connection(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(DatabaseUnavailable):
                here.one()
        assert bystander.poll() is None
    finally:
        bystander.communicate()


ON_THE_STANDARD_LIBRARY = """
    import sys
    sys.modules["pysqlite3"] = None  # as where no wheel of it exists
    from quire import log
    from quire.store.db import sqlite
    from quire.store import open_database
    log.setup()
    db = open_database(f"sqlite:///{sys.argv[1]}")
    db.migrate()
    open_database(f"sqlite:///{sys.argv[1]}")
    with db.read() as conn:
        print(sqlite.sqlite_module().sqlite_version)
        print(conn.exec_driver_sql("PRAGMA journal_mode").scalar())
"""


def test_an_engine_that_can_corrupt_a_wal_uses_a_rollback_journal_and_says_so_once(path: Path):
    if sqlite.is_wal_safe(sqlite3.sqlite_version_info):
        expected, warnings = "wal", 0
    else:
        expected, warnings = "delete", 1
    with other_process(ON_THE_STANDARD_LIBRARY, path) as other:
        out, err = other.communicate(timeout=60)
    assert out.split() == [sqlite3.sqlite_version, expected], err
    assert err.count("database.slow_journal") == warnings


def test_a_database_that_was_in_wal_mode_is_taken_out_of_it_on_an_unsafe_engine(
    here: Stage, path: Path
):
    if sqlite.is_wal_safe(sqlite3.sqlite_version_info):
        return
    here.one()
    here.db.close()
    with other_process(ON_THE_STANDARD_LIBRARY, path) as other:
        out, err = other.communicate(timeout=60)
    assert out.split()[-1:] == ["delete"], err


def test_waiting_writers_of_several_processes_all_get_their_turn(here: Stage, path: Path):
    script = """
        import sys
        from quire.store import open_database
        from tests.store.stage import Stage
        stage = Stage(open_database(f"sqlite:///{sys.argv[1]}", synchronous="normal"))
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(20):
            stage.one()
        print("done", flush=True)
    """
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(other_process(script, path)) for _ in range(3)]
        assert [line_of(each) for each in others] == ["ready"] * 3
        for each in others:
            tell(each)
        assert [line_of(each) for each in others] == ["done"] * 3
    assert here.count("jobs") == 60
    here.inspect()


def test_an_error_in_a_transaction_undoes_all_of_it(here: Stage):
    def act(conn, now):
        conn.exec_driver_sql("INSERT INTO meta (key, value) VALUES ('half', 'done')")
        raise ValueError

    with pytest.raises(ValueError):
        here.db.write(act)
    assert here.rows("meta", key="half") == []
    assert here.one()


def test_reading_sees_one_moment(db: Database):
    stage = Stage(db)
    stage.one()
    with db.read() as conn:
        before = conn.exec_driver_sql("SELECT count(*) FROM jobs").scalar()
        stage.one()
        assert conn.exec_driver_sql("SELECT count(*) FROM jobs").scalar() == before
