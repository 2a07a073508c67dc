"""What the database alone allows: a queue of one table, claim and finish as two commits a job.

It has no owners, leases, history or children. Run as a program it drains such a queue, or waits
at an empty one; what it says at the end is one line of JSON.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from quire.store.db import sqlite

_TABLE = (
    "CREATE TABLE job (id {serial}, priority INT NOT NULL DEFAULT 0, state INT NOT NULL DEFAULT 0, "
    "payload TEXT NOT NULL, began {real}, ended {real})"
)
_INDEX = "CREATE INDEX pending ON job (priority, id) WHERE state = 0"
_CLAIM = (
    "UPDATE job SET state = 1, began = {at} WHERE id = (SELECT id FROM job WHERE state = 0 "
    "ORDER BY priority, id LIMIT 1{lock}) RETURNING id"
)
_FINISH = "UPDATE job SET state = 2, ended = {at} WHERE id = {at}"
POLL_SECONDS = 0.005


class Queue(Protocol):
    """A bare queue on one of the databases; every call is one commit."""

    def create(self) -> None:
        """Make the table."""
        ...

    def insert(self) -> None:
        """Add one job."""
        ...

    def insert_many(self, count: int) -> None:
        """Add many jobs by one statement."""
        ...

    def claim(self) -> int | None:
        """Take the first job, if there is one."""
        ...

    def finish(self, job_id: int) -> None:
        """End a job."""
        ...

    def ended(self) -> list[float]:
        """List when the finished jobs ended."""
        ...

    def written(self) -> int | None:
        """Return how far the server's log has got, in bytes; None without one."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class SqliteQueue:
    """On SQLite: WAL where Quire itself would use it, every commit flushed."""

    def __init__(self, path: str) -> None:
        module = sqlite.sqlite_module()
        self._conn: Any = module.connect(path, isolation_level=None, timeout=30)
        if sqlite.is_wal_safe(module.sqlite_version_info):
            self._conn.execute("PRAGMA journal_mode = wal")
        self._conn.execute("PRAGMA synchronous = full")

    def create(self) -> None:
        """Make the table."""
        self._conn.execute(_TABLE.format(serial="INTEGER PRIMARY KEY", real="REAL"))
        self._conn.execute(_INDEX)

    def insert(self) -> None:
        """Add one job."""
        self._conn.execute("INSERT INTO job (payload) VALUES (?)", ("{}",))

    def insert_many(self, count: int) -> None:
        """Add many jobs by one statement."""
        numbers = json.dumps(["{}"] * count)
        self._conn.execute("INSERT INTO job (payload) SELECT value FROM json_each(?)", (numbers,))

    def claim(self) -> int | None:
        """Take the first job, if there is one."""
        self._conn.execute("BEGIN IMMEDIATE")
        found = self._conn.execute(_CLAIM.format(at="?", lock=""), (time.time(),)).fetchall()
        self._conn.execute("COMMIT")
        return found[0][0] if found else None

    def finish(self, job_id: int) -> None:
        """End a job."""
        self._conn.execute("BEGIN IMMEDIATE")
        self._conn.execute(_FINISH.format(at="?"), (time.time(), job_id))
        self._conn.execute("COMMIT")

    def ended(self) -> list[float]:
        """List when the finished jobs ended."""
        found = self._conn.execute("SELECT ended FROM job WHERE state = 2").fetchall()
        return [row[0] for row in found]

    def written(self) -> int | None:
        """Return None: each process counts its own writes."""
        return None

    def close(self) -> None:
        """Close the connection."""
        self._conn.close()


class PostgresQueue:
    """On PostgreSQL: prepared statements, synchronous commits."""

    def __init__(self, url: str) -> None:
        import psycopg

        self._conn: Any = psycopg.connect(url, autocommit=True, prepare_threshold=1)
        self._conn.execute("SET synchronous_commit = on")

    def create(self) -> None:
        """Make the table."""
        self._conn.execute(_TABLE.format(serial="BIGSERIAL PRIMARY KEY", real="FLOAT8"))
        self._conn.execute(_INDEX)

    def insert(self) -> None:
        """Add one job."""
        self._conn.execute("INSERT INTO job (payload) VALUES (%s)", ("{}",))

    def insert_many(self, count: int) -> None:
        """Add many jobs by one statement."""
        with (
            self._conn.transaction(),
            self._conn.cursor() as cursor,
            cursor.copy("COPY job (payload) FROM STDIN") as copy,
        ):
            copy.write("{}\n" * count)

    def claim(self) -> int | None:
        """Take the first job, if there is one."""
        statement = _CLAIM.format(at="%s", lock=" FOR UPDATE SKIP LOCKED")
        found = self._conn.execute(statement, (time.time(),)).fetchall()
        return found[0][0] if found else None

    def finish(self, job_id: int) -> None:
        """End a job."""
        self._conn.execute(_FINISH.format(at="%s"), (time.time(), job_id))

    def ended(self) -> list[float]:
        """List when the finished jobs ended."""
        found = self._conn.execute("SELECT ended FROM job WHERE state = 2").fetchall()
        return [row[0] for row in found]

    def written(self) -> int | None:
        """Return how far the server's log has got, in bytes."""
        found = self._conn.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        return int(found[0])

    def close(self) -> None:
        """Close the connection."""
        self._conn.close()


def connect(url: str) -> Queue:
    """Open the bare queue of a database."""
    if url.startswith("sqlite"):
        return SqliteQueue(url.removeprefix("sqlite:///"))
    return PostgresQueue(url)


def drain(queue: Queue) -> None:
    """Claim and finish until nothing is left."""
    while (job_id := queue.claim()) is not None:
        queue.finish(job_id)


def pass_seconds(queue: Queue, times: int = 30) -> float:
    """Return how long a claim and a finish take, as a median: what a hand-over costs at least."""
    queue.insert_many(times)
    spans = []
    for _ in range(times):
        began = time.perf_counter()
        job_id = queue.claim()
        if job_id is not None:
            queue.finish(job_id)
        spans.append(time.perf_counter() - began)
    return sorted(spans)[times // 2]


def wait(queue: Queue) -> None:
    """Look for work for ever, as a worker without a wake-up has to."""
    while True:
        if (job_id := queue.claim()) is not None:
            queue.finish(job_id)
        else:
            time.sleep(POLL_SECONDS)


def written_bytes() -> int | None:
    """Return the bytes that this process sent to storage, where the system counts them."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return None
    return int(text.partition("\nwrite_bytes:")[2].split(None, 1)[0])


def main() -> None:
    """Drain the queue of the URL given, or wait at it."""
    verb, url = sys.argv[1:]
    queue = connect(url)
    if verb == "wait":
        wait(queue)
    else:
        began = time.process_time()
        drain(queue)
        busy = time.process_time() - began
        sys.stdout.write(json.dumps({"bytes": written_bytes(), "busy": busy}))


if __name__ == "__main__":
    main()
