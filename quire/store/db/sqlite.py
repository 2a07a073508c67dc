"""SQLite as the embedded database: library version, journal mode, and the write lock.

Engines from 3.7.0 to 3.51.2 can corrupt a WAL database that two processes write and checkpoint
at the same instant; on those a rollback journal is used instead.
"""

import contextlib
import errno
import os
import signal
import struct
import time
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from quire import log
from quire.clock import own_pid_start, pid_start
from quire.errors import Conflict, DatabaseUnavailable
from quire.home import FILE_MODE, make_folder
from quire.store.db import last_ids
from quire.store.db.sqlite_driver import sqlite_module as sqlite_module

#: How long exclusive access waits for other processes to close the file.
EXCLUSIVE_WAIT_SECONDS = 5.0
#: The advice at the end of database errors.
NOTHING_LOST = "Nothing was lost: workers retry on their own; run a failed command again."

_HOLDER = struct.Struct("<q24sd")
_NOBODY = _HOLDER.pack(0, b"", 0.0)


class FileReplaced(DatabaseUnavailable):
    """Another file is at the path of the database; a new connection opens that one."""


def is_wal_safe(version: tuple[int, ...]) -> bool:
    """Tell whether this SQLite version has the fix for the WAL-reset corruption."""
    if version == (3, 52, 0):
        return False
    backported = (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)
    return version >= (3, 51, 3) or backported


def make_engine(path: Path, synchronous: str) -> sa.Engine:
    """Create an engine; a transaction begins by `begin_immediate` or a plain BEGIN."""
    module = sqlite_module()
    wal = is_wal_safe(module.sqlite_version_info)
    if not wal:
        _warn_once(module.sqlite_version)
    engine = _engine(path)

    @sa.event.listens_for(engine, "connect")
    def prepare(driver: Any, record: Any) -> None:
        run = driver.cursor().execute
        run("PRAGMA busy_timeout = 10000")
        run(f"PRAGMA journal_mode = {'wal' if wal else 'delete'}")
        run(f"PRAGMA synchronous = {synchronous}")
        run("PRAGMA foreign_keys = on")
        run("PRAGMA journal_size_limit = 67108864")
        run("PRAGMA cache_size = -16000")
        # Pages that change often, such as index pages, are then copied once per checkpoint.
        run("PRAGMA wal_autocheckpoint = 4000")
        record.info["inode"] = _inode(path)

    @sa.event.listens_for(engine, "checkout")
    def reopen(driver: Any, record: Any, proxy: Any) -> None:
        # Otherwise a reader would keep using a file that was deleted and restored.
        opened = record.info["inode"]
        if opened is not None and _inode(path) not in (opened, None):
            raise sa.exc.DisconnectionError(f"database {path}: the file was replaced")

    # Not the "begin" event: with a listener, the engine checks for listeners at every statement.
    engine.dialect.do_begin = _begin  # type: ignore[method-assign, assignment]
    return engine


def _engine(path: Path, **options: Any) -> sa.Engine:
    module = sqlite_module()
    # Never create the file on connect: a deleted database would silently come back empty.
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sa.create_engine(
        f"sqlite:///{path}",
        module=module,
        creator=lambda: module.connect(
            uri,
            uri=True,
            timeout=0,
            check_same_thread=False,
            isolation_level=None,
            # A worker's round uses more statements than the driver's default cache (128), and
            # preparing one takes several times as long as running it.
            cached_statements=1_000,
        ),
        **options,
    )


def _begin(driver: Any) -> None:
    """Begin a read, unless `begin_immediate` has begun a write."""
    if not driver.info.pop("begun", False):
        driver.cursor().execute("BEGIN")


def begin_immediate(conn: sa.Connection, path: Path, timeout: float, max_hold: float) -> None:
    """Begin a write transaction, see `lock`."""
    driver: Any = conn.connection.driver_connection
    cursor = driver.cursor()
    cursor.execute("PRAGMA busy_timeout = 0")
    try:
        lock(cursor, path, timeout, max_hold)
    except sqlite_module().Error as error:
        raise sa.exc.OperationalError("BEGIN IMMEDIATE", None, error) from error
    finally:
        cursor.execute("PRAGMA busy_timeout = 10000")
    conn.info["begun"] = True
    try:
        check_still_there(conn.connection, path)
    except DatabaseUnavailable:
        conn.info.pop("begun", None)
        conn.invalidate()
        raise


def lock(cursor: Any, path: Path, timeout: float, max_hold: float) -> None:
    """Take the write lock or raise after `timeout`; kill a process that held it for `max_hold`."""
    end = time.monotonic() + timeout
    while True:
        try:
            cursor.execute("BEGIN IMMEDIATE")
            return
        except Exception as error:
            if "locked" not in str(error):
                raise
            if time.monotonic() > end:
                _kill_stuck_writer(path, max_hold)
                raise DatabaseUnavailable(
                    f"database {path}: locked by another process for {timeout:g} s. {NOTHING_LOST}"
                ) from error
            time.sleep(0.0005)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[sa.Connection]:
    """Open the file exclusively in a write transaction; fails while other processes use it.

    In WAL mode every open connection holds a lock that conflicts with this one, so idle processes
    are detected too; with a rollback journal only those that read or write.
    """
    with _engine(path, poolclass=sa.NullPool).connect() as conn:
        driver: Any = conn.connection.driver_connection
        _begin_exclusive(driver.cursor().execute, path)
        with conn.begin():
            yield conn


def _begin_exclusive(run: Callable[[str], Any], path: Path) -> None:
    end = time.monotonic() + EXCLUSIVE_WAIT_SECONDS
    while True:
        try:
            run("PRAGMA locking_mode = exclusive")
            run("PRAGMA synchronous = full")
            run("BEGIN EXCLUSIVE")
            return
        except Exception as error:
            if "locked" not in str(error):
                raise DatabaseUnavailable(
                    f"database {path}: {error}. Nothing was changed; run this again when the file "
                    "is readable and writable."
                ) from error
            if time.monotonic() > end:
                raise Conflict(
                    f"database {path}: open in another Quire process. Stop `quire up`, workers, "
                    "the scheduler and the API of this QUIRE_HOME, then run this again. Nothing "
                    "was changed."
                ) from error
            time.sleep(0.01)


def highest_id(conn: sa.Connection, table: sa.Table) -> int:
    """Return the highest id that a table has or had, as far as recorded."""
    given = "SELECT max(seq) FROM sqlite_sequence WHERE name = ?"
    last: int = conn.exec_driver_sql(f"SELECT {last_ids.last_id(table.name)}").scalar_one()
    return max(last, conn.exec_driver_sql(given, (table.name,)).scalar() or 0)


def other_tables(conn: sa.Connection, known: Collection[str]) -> list[str]:
    """List the tables other than the known ones, the search indexes and SQLite's own."""
    found = sa.inspect(conn).get_table_names()
    derived = ("chunk_words", "document_entries", "document_words")
    return [name for name in found if name not in known and not name.startswith(derived)]


def check_still_there(pooled: sa.PoolProxiedConnection, path: Path) -> None:
    """Refuse to write to a file that was deleted or replaced; restore a deleted one first."""
    driver: Any = pooled.driver_connection
    expected = pooled.info["inode"]
    found = _inode(path)
    if found == expected or expected is None:
        pooled.info["inode"] = found
        return
    # This process holds the write lock of the unlinked file, so every other process that still
    # has it open reaches this check before it can commit anything the copy would miss.
    try:
        if found is None:
            _restore(driver, path)
    finally:
        driver.rollback()
    log.event(
        "database.restored" if found is None else "database.replaced", level="warning", path=path
    )
    if found is not None:
        raise FileReplaced(f"database {path}: the file was replaced while in use. {NOTHING_LOST}")
    raise DatabaseUnavailable(
        f"database {path}: the file was deleted while in use, and was restored from the open file. "
        "It will be reopened."
    )


def _restore(driver: Any, path: Path) -> None:
    """Copy the unlinked file, still open here, back to its path; keeps its write lock."""
    make_folder(path.parent)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    run = driver.cursor().execute
    while True:
        # The backup API refuses a writing connection: release the lock, copy, take it again, and
        # start over if another process committed in between.
        before = run("PRAGMA data_version").fetchone()
        driver.rollback()
        part.unlink(missing_ok=True)
        part.touch(mode=FILE_MODE)
        with contextlib.closing(sqlite_module().connect(str(part))) as copy:
            driver.backup(copy)
        run("BEGIN IMMEDIATE")
        if run("PRAGMA data_version").fetchone() == before:
            break
    if path.exists():  # restored by another process
        part.unlink()
        return
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    part.rename(path)


@contextlib.contextmanager
def record_writer(path: Path | None, *, is_long: bool) -> Iterator[None]:
    """Record in a file that this process holds the write lock, while it does.

    A long transaction is recorded without its process, so that nobody kills it.
    """
    if path is None:
        yield
        return
    note = note_writer(path, is_long=is_long)
    try:
        yield
    finally:
        erase_writer(note)


def note_writer(path: Path, *, is_long: bool = False) -> int | None:
    """Begin what `record_writer` does; returns the file of the record."""
    # Kept open: reopening would cost more than the write.
    note = _notes.get(path)
    if note is None:
        try:
            name = path.with_name(path.name + ".writer")
            note = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        _notes[path] = note
    holder = _NOBODY
    if not is_long:
        holder = _HOLDER.pack(os.getpid(), own_pid_start().encode(), time.monotonic())
    _write_note(note, holder)
    return note


def erase_writer(note: int | None) -> None:
    """End what `note_writer` began, unless another process has the lock by now."""
    if note is not None and os.pread(note, 8, 0) == os.getpid().to_bytes(8, "little"):
        _write_note(note, _NOBODY)


_notes: dict[Path, int] = {}


def _write_note(note: int, text: bytes) -> None:
    try:
        os.pwrite(note, text, 0)
    except OSError:  # a full disk must not fail the transaction itself
        return


def _kill_stuck_writer(path: Path, max_hold: float) -> None:
    """Kill a Quire process that held the write lock for so long that leases may expire."""
    try:
        pid, start, since = _HOLDER.unpack(path.with_name(path.name + ".writer").read_bytes())
    except (OSError, struct.error):
        return
    held = time.monotonic() - since
    if not pid or pid == os.getpid() or held < max_hold:
        return
    if pid_start(pid) != start.rstrip(b"\0").decode():
        return
    log.event("database.writer_killed", level="error", pid=pid, held_seconds=round(held, 1))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise
    return found.st_dev, found.st_ino


@cache
def _warn_once(version: str) -> None:
    log.event(
        "database.slow_journal",
        level="warning",
        sqlite=version,
        why="this SQLite version can corrupt a WAL database with several writers",
        remedy="pip install 'pysqlite3>=0.6.1', or use a Python with SQLite 3.51.3 or later",
    )
