"""The bare loop: a minimal queue in one table, with two commits a job (claim and finish).

It shows what the database alone allows: no owners, leases, history or children. As a program it
drains such a queue and prints one line of JSON, or polls an empty one.
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
    """A minimal queue on one of the databases. Every call is one commit."""

    def create(self) -> None:
        """Create the table."""
        ...

    def insert(self) -> None:
        """Add one job."""
        ...

    def insert_many(self, count: int) -> None:
        """Add many jobs with one statement."""
        ...

    def claim(self) -> int | None:
        """Claim the first job, if there is one."""
        ...

    def finish(self, job_id: int) -> None:
        """Mark a job as finished."""
        ...

    def ended(self) -> list[float]:
        """Return the end times of finished jobs."""
        ...

    def written(self) -> int | None:
        """Return the WAL position of the server in bytes; None on SQLite."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class SqliteQueue:
    """On SQLite: WAL if Quire would use it too; every commit is flushed to disk."""

    def __init__(self, path: str) -> None:
        module = sqlite.sqlite_module()
        self._conn: Any = module.connect(path, isolation_level=None, timeout=30)
        if sqlite.is_wal_safe(module.sqlite_version_info):
            self._conn.execute("PRAGMA journal_mode = wal")
        self._conn.execute("PRAGMA synchronous = full")

    def create(self) -> None:
        """Create the table."""
        self._conn.execute(_TABLE.format(serial="INTEGER PRIMARY KEY", real="REAL"))
        self._conn.execute(_INDEX)

    def insert(self) -> None:
        """Add one job."""
        self._conn.execute("INSERT INTO job (payload) VALUES (?)", ("{}",))

    def insert_many(self, count: int) -> None:
        """Add many jobs with one statement."""
        numbers = json.dumps(["{}"] * count)
        self._conn.execute("INSERT INTO job (payload) SELECT value FROM json_each(?)", (numbers,))

    def claim(self) -> int | None:
        """Claim the first job, if there is one."""
        self._conn.execute("BEGIN IMMEDIATE")
        found = self._conn.execute(_CLAIM.format(at="?", lock=""), (time.time(),)).fetchall()
        self._conn.execute("COMMIT")
        return found[0][0] if found else None

    def finish(self, job_id: int) -> None:
        """Mark a job as finished."""
        self._conn.execute("BEGIN IMMEDIATE")
        self._conn.execute(_FINISH.format(at="?"), (time.time(), job_id))
        self._conn.execute("COMMIT")

    def ended(self) -> list[float]:
        """Return the end times of finished jobs."""
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
        """Create the table."""
        self._conn.execute(_TABLE.format(serial="BIGSERIAL PRIMARY KEY", real="FLOAT8"))
        self._conn.execute(_INDEX)

    def insert(self) -> None:
        """Add one job."""
        self._conn.execute("INSERT INTO job (payload) VALUES (%s)", ("{}",))

    def insert_many(self, count: int) -> None:
        """Add many jobs with one statement."""
        with (
            self._conn.transaction(),
            self._conn.cursor() as cursor,
            cursor.copy("COPY job (payload) FROM STDIN") as copy,
        ):
            copy.write("{}\n" * count)

    def claim(self) -> int | None:
        """Claim the first job, if there is one."""
        statement = _CLAIM.format(at="%s", lock=" FOR UPDATE SKIP LOCKED")
        found = self._conn.execute(statement, (time.time(),)).fetchall()
        return found[0][0] if found else None

    def finish(self, job_id: int) -> None:
        """Mark a job as finished."""
        self._conn.execute(_FINISH.format(at="%s"), (time.time(), job_id))

    def ended(self) -> list[float]:
        """Return the end times of finished jobs."""
        found = self._conn.execute("SELECT ended FROM job WHERE state = 2").fetchall()
        return [row[0] for row in found]

    def written(self) -> int | None:
        """Return the WAL position of the server in bytes."""
        found = self._conn.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        return int(found[0])

    def close(self) -> None:
        """Close the connection."""
        self._conn.close()


def connect(url: str) -> Queue:
    """Connect to the minimal queue in a database."""
    if url.startswith("sqlite"):
        return SqliteQueue(url.removeprefix("sqlite:///"))
    return PostgresQueue(url)


def drain(queue: Queue) -> None:
    """Claim and finish until nothing is left."""
    while (job_id := queue.claim()) is not None:
        queue.finish(job_id)


def pass_seconds(queue: Queue, times: int = 30) -> float:
    """Return the median seconds of a claim and a finish: the least that a hand-over costs."""
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
    """Poll for work forever, as a worker without wake-ups must."""
    while True:
        if (job_id := queue.claim()) is not None:
            queue.finish(job_id)
        else:
            time.sleep(POLL_SECONDS)


def written_bytes() -> int | None:
    """Return the bytes this process wrote to storage; None if the system does not count them."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return None
    return int(text.partition("\nwrite_bytes:")[2].split(None, 1)[0])


def main() -> None:
    """Drain the queue at the given URL, or poll it."""
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
