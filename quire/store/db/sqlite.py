"""SQLite as the embedded database: which engine, which journal, and who holds the write lock.

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
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import sqlalchemy as sa

from quire import log
from quire.clock import own_pid_start, pid_start
from quire.errors import Conflict, DatabaseUnavailable

#: How long a process that ends is waited for by one that needs the file for itself.
EXCLUSIVE_WAIT_SECONDS = 5.0
#: What an error of the database ends with.
UNHARMED = "Nothing was lost: workers try again by themselves, a command has to be given again."

_warned = False
_HOLDER = struct.Struct("<q24sd")


def sqlite_module() -> ModuleType:
    """Return the newest SQLite there is: the bundled one, else the standard library's."""
    try:
        from pysqlite3 import dbapi2
    except ImportError:
        import sqlite3 as dbapi2
    return cast(ModuleType, dbapi2)


def is_wal_safe(version: tuple[int, ...]) -> bool:
    """Tell whether this engine has the fix of the WAL-reset corruption."""
    if version == (3, 52, 0):
        return False
    backported = (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)
    return version >= (3, 51, 3) or backported


def make_engine(path: Path, synchronous: str) -> sa.Engine:
    """Build an engine whose transactions begin as `begin_immediate` or a plain BEGIN says."""
    module = sqlite_module()
    wal = is_wal_safe(module.sqlite_version_info)
    if not wal:
        _warn_once(module.sqlite_version)
    # A connection makes no file: one that was deleted would be there again, and empty.
    place = f"{path.absolute().as_uri()}?mode=rw"
    engine = sa.create_engine(
        f"sqlite:///{path}",
        module=module,
        creator=lambda: module.connect(
            place,
            uri=True,
            timeout=0,
            check_same_thread=False,
            isolation_level=None,
            # A round of a worker has more statements than the driver keeps (128), and to prepare
            # one again takes several times as long as to run it.
            cached_statements=1_000,
        ),
    )

    @sa.event.listens_for(engine, "connect")
    def prepare(driver: Any, record: Any) -> None:
        run = driver.cursor().execute
        run("PRAGMA busy_timeout = 10000")
        run(f"PRAGMA journal_mode = {'wal' if wal else 'delete'}")
        run(f"PRAGMA synchronous = {synchronous}")
        run("PRAGMA foreign_keys = on")
        run("PRAGMA journal_size_limit = 67108864")
        run("PRAGMA cache_size = -16000")
        # Pages that are written again and again, as those of indexes, are then copied once.
        run("PRAGMA wal_autocheckpoint = 4000")
        record.info["inode"] = _inode(path)

    @sa.event.listens_for(engine, "checkout")
    def reopen(driver: Any, record: Any, proxy: Any) -> None:
        # A reader would go on for ever with a file that was deleted and put back by another.
        opened = record.info["inode"]
        if opened is not None and _inode(path) not in (opened, None):
            raise sa.exc.DisconnectionError(f"database {path}: another file is in its place")

    # Not by the event "begin": an engine that has one looks for listeners at every statement.
    engine.dialect.do_begin = _begin  # type: ignore[method-assign, assignment]
    return engine


def _begin(driver: Any) -> None:
    """Begin to read, unless `begin_immediate` has begun to write."""
    if not driver.info.pop("begun", False):
        driver.cursor().execute("BEGIN")


def begin_immediate(conn: sa.Connection, path: Path, patience: float, longest: float) -> None:
    """Take the write lock, or raise after `patience`; end one who has held it for `longest`."""
    driver: Any = conn.connection.driver_connection
    cursor = driver.cursor()
    end = time.monotonic() + patience
    cursor.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                cursor.execute("BEGIN IMMEDIATE")
                break
            except Exception as error:
                if "locked" not in str(error):
                    raise sa.exc.OperationalError("BEGIN IMMEDIATE", None, error) from error
                if time.monotonic() > end:
                    _end_stuck_holder(path, longest)
                    raise DatabaseUnavailable(
                        f"database {path}: locked by another process for {patience:g} s. {UNHARMED}"
                    ) from error
                time.sleep(0.0005)
    finally:
        cursor.execute("PRAGMA busy_timeout = 10000")
    conn.info["begun"] = True
    _check_still_there(conn, driver, path)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[sa.Connection]:
    """Open the file for this process alone, in a write transaction; refused while others have it.

    In WAL mode every open connection holds a lock of which this one needs the opposite, so that
    idle processes are noticed too; with a rollback journal only those that read or write.
    """
    module = sqlite_module()
    engine = sa.create_engine(
        f"sqlite:///{path}",
        module=module,
        poolclass=sa.NullPool,
        creator=lambda: module.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None
        ),
    )
    with engine.connect() as conn:
        driver: Any = conn.connection.driver_connection
        _begin_alone(driver.cursor().execute, path)
        with conn.begin():
            yield conn


def _begin_alone(run: Callable[[str], Any], path: Path) -> None:
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
                    f"database {path}: {error}. Nothing was changed; run this again when it can "
                    "be read and written."
                ) from error
            if time.monotonic() > end:
                raise Conflict(
                    f"database {path}: another process of Quire has it open. Stop `quire up`, "
                    "workers, the scheduler and the API of this home, and run this again; nothing "
                    "was changed."
                ) from error
            time.sleep(0.01)


def highest_id(conn: sa.Connection, table: sa.Table) -> int:
    """Return the highest id that a table has or had, as far as SQLite was told to remember it."""
    kept = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?"
    given = "SELECT max(seq) FROM sqlite_sequence WHERE name = ?"
    found = (
        conn.scalar(sa.select(sa.func.max(table.c.id))),
        conn.exec_driver_sql(kept, (f"last_id.{table.name}",)).scalar(),
        conn.exec_driver_sql(given, (table.name,)).scalar(),
    )
    return max(each or 0 for each in found)


def other_tables(conn: sa.Connection, known: Collection[str]) -> list[str]:
    """List the tables beside the known ones, the full-text index and SQLite's own."""
    found = sa.inspect(conn).get_table_names()
    return [name for name in found if name not in known and not name.startswith("chunk_words")]


def _check_still_there(conn: sa.Connection, driver: Any, path: Path) -> None:
    """Refuse to write to a file that was deleted or replaced; put a deleted one back first."""
    expected = conn.connection.info["inode"]
    found = _inode(path)
    if found == expected or expected is None:
        conn.connection.info["inode"] = found
        return
    # The write lock of the vanished file is ours, so whoever else still has it open comes to
    # this same check before it can commit anything that the copy would miss.
    try:
        if found is None:
            _put_back(driver, path)
    finally:
        driver.rollback()
        conn.info.pop("begun", None)
        conn.invalidate()
    log.event(
        "database.put_back" if found is None else "database.replaced", level="warning", path=path
    )
    raise DatabaseUnavailable(
        f"database {path}: the file was deleted or replaced while in use"
        + (", and was written back from memory" if found is None else "")
        + ". It is opened again."
    )


def _put_back(driver: Any, path: Path) -> None:
    """Copy the vanished file, still open here, to its place; needs and keeps its write lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    run = driver.cursor().execute
    while True:
        # The backup call refuses a connection that is writing: let go, copy, take the lock
        # again, and begin anew where somebody committed in between.
        before = run("PRAGMA data_version").fetchone()
        driver.rollback()
        part.unlink(missing_ok=True)
        with contextlib.closing(sqlite_module().connect(str(part))) as copy:
            driver.backup(copy)
        run("BEGIN IMMEDIATE")
        if run("PRAGMA data_version").fetchone() == before:
            break
    if path.exists():  # another process was faster
        part.unlink()
        return
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    part.rename(path)


@contextlib.contextmanager
def record_writer(path: Path | None) -> Iterator[None]:
    """Write down that this process holds the write lock, for as long as it does."""
    if path is None:
        yield
        return
    # Kept open: closing would cost more than the note.
    note = _notes.get(path)
    if note is None:
        try:
            name = path.with_name(path.name + ".writer")
            note = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            yield
            return
        _notes[path] = note
    _write_note(note, _HOLDER.pack(os.getpid(), own_pid_start().encode(), time.monotonic()))
    try:
        yield
    finally:
        # After the commit another may hold the lock already, and its note must stay.
        if os.pread(note, 8, 0) == struct.pack("<q", os.getpid()):
            _write_note(note, _HOLDER.pack(0, b"", 0.0))


_notes: dict[Path, int] = {}


def _write_note(note: int, text: bytes) -> None:
    with contextlib.suppress(OSError):  # a full disk must not fail the transaction itself
        os.pwrite(note, text, 0)


def _end_stuck_holder(path: Path, longest: float) -> None:
    """Kill the process of ours that has held the write lock so long that leases are at risk."""
    try:
        pid, start, since = _HOLDER.unpack(path.with_name(path.name + ".writer").read_bytes())
    except (OSError, struct.error):
        return
    held = time.monotonic() - since
    if not pid or pid == os.getpid() or held < longest:
        return
    if pid_start(pid) != start.rstrip(b"\0").decode():
        return
    log.event("database.holder_killed", level="error", pid=pid, held_seconds=round(held, 1))
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


def _warn_once(version: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        log.event(
            "database.slow_journal",
            level="warning",
            sqlite=version,
            why="this engine can corrupt a WAL database written by two processes",
            remedy="pip install 'pysqlite3>=0.6.1', or a Python with SQLite 3.51.3 or later",
        )
