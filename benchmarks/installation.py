"""Temporary installations to measure: a database, a home, and Quire's processes on them."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.queue import bare
from quire import settings
from quire.app import App
from quire.control.caller import Caller
from quire.errors import WorkerStartFailed
from quire.model.records import Submission

PLUGIN = "benchmarks.handlers"
WAIT_SECONDS = 120.0
POLL_SECONDS = 0.002


class Mark(NamedTuple):
    """What a handler reported: a name, the time, and its process."""

    name: str
    at: float
    pid: int


class Backend:
    """SQLite or a PostgreSQL server: creates temporary databases and removes them."""

    def __init__(self, name: str, folder: Path, server: str | None = None) -> None:
        self.name = name
        self.folder = folder
        self._server = server

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Create an empty database; yields its URL."""
        name = f"quire_bench_{uuid.uuid4().hex[:10]}"
        if self._server is None:
            place = self.folder / name
            place.mkdir()
            yield f"sqlite:///{place / 'quire.db'}"
            shutil.rmtree(place)
            return
        import psycopg

        with psycopg.connect(self._server, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            parts = psycopg.conninfo.conninfo_to_dict(self._server)
            yield _url({**parts, "dbname": name})
        finally:
            with psycopg.connect(self._server, autocommit=True) as admin:
                admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def version(self) -> str:
        """Return the version of the PostgreSQL server."""
        import psycopg

        with psycopg.connect(str(self._server)) as conn:
            return str(conn.execute("SHOW server_version").fetchall()[0][0])

    @contextlib.contextmanager
    def installation(self) -> Iterator["Installation"]:
        """Create a database with Quire's schema, and a home for its processes."""
        home = Path(tempfile.mkdtemp(prefix="h", dir=self.folder))
        with self.database() as url, contextlib.closing(Installation(home, url)) as installation:
            yield installation
        shutil.rmtree(home, ignore_errors=True)

    @contextlib.contextmanager
    def bare_queue(self) -> Iterator[tuple[str, bare.Queue]]:
        """Create a database with the bare loop's queue; yields its URL and a connection."""
        with self.database() as url, contextlib.closing(bare.connect(url)) as queue:
            queue.create()
            yield url, queue


class Installation:
    """A database with Quire's schema, the app on it, and the processes started for it."""

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
        self.url = url
        self.marks = home / "marks"
        self.log = home / "log"
        chosen = settings.load({}, home=home, database_url=url, plugins=(PLUGIN,), user="bench")
        self._processes: list[psutil.Process] = []
        if not url.startswith("sqlite"):
            _migrate(url)
        self.app = App(chosen)

    def close(self) -> None:
        """Stop every process and close the database."""
        self.stop()
        self.app.close()

    # ------------------------------------------------------------------ requests and rows

    def caller(self, user: str, ring: Callable[[], None] | None = None) -> Caller:
        """Return the caller for requests of a user."""
        own = self.app.caller
        return dataclasses.replace(own, user=user, ring=ring or own.ring)

    def submission(self, kind: str, name: str, **payload: Any) -> Submission:
        """Return a submission of a kind that reports when it ran."""
        return Submission(kind, {"marks": str(self.marks), "name": name, **payload})

    def rows(self, statement: str) -> list[Any]:
        """Run a query and return its rows."""
        with self.app.db.read() as conn:
            return list(conn.exec_driver_sql(statement).all())

    def run(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with self.app.db.begin() as conn:
            for statement in statements:
                conn.exec_driver_sql(statement)

    def columns(self, table: str) -> list[str]:
        """Return the column names of a table."""
        with self.app.db.read() as conn:
            return list(conn.exec_driver_sql(f"SELECT * FROM {table} LIMIT 0").keys())  # noqa: S608

    def count(self, table: str) -> int:
        """Count the rows of a table."""
        return int(self.rows(f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608

    def wait_until_done(self) -> None:
        """Wait until no job is active; fails if none ends for `WAIT_SECONDS`."""
        ended = -1
        while self._is_active():
            before, ended = ended, self.count("attempts")
            if ended == before:
                self._wait_for_a_job_to_end(ended)
            time.sleep(0.05)

    def _wait_for_a_job_to_end(self, ended: int) -> None:
        self.wait_for(
            lambda: self.count("attempts") > ended or not self._is_active(),
            "a job to end",
            every=0.05,
        )

    def _is_active(self) -> bool:
        return bool(self.rows("SELECT id FROM jobs WHERE state IN ('pending', 'running') LIMIT 1"))

    def read_marks(self) -> list[Mark]:
        """Return what the handlers have reported."""
        if not self.marks.exists():
            return []
        lines = self.marks.read_text().splitlines()
        return [Mark(name, float(at), int(pid)) for name, at, pid in map(str.split, lines)]

    def wait_for_mark(self, name: str, count: int = 1) -> Mark:
        """Wait until a handler has reported `name` for the `count`th time."""
        found: list[Mark] = []

        def is_there() -> bool:
            found[:] = [one for one in self.read_marks() if one.name == name]
            return len(found) >= count

        self.wait_for(is_there, f"the task {name} to run")
        return found[count - 1]

    def wait_for(
        self, is_so: Callable[[], bool], what: str, *, every: float = POLL_SECONDS
    ) -> None:
        """Wait for something that Quire should do; fails after `WAIT_SECONDS`."""
        end = time.monotonic() + WAIT_SECONDS
        while not is_so():
            if time.monotonic() > end:
                tail = self.log.read_text()[-2000:] if self.log.exists() else ""
                raise WorkerStartFailed(f"bench: waited {WAIT_SECONDS:g} s for {what}. Log: {tail}")
            time.sleep(every)

    # ------------------------------------------------------------------ processes

    def start(self, *arguments: str, concurrency: int = 0, **settings: object) -> psutil.Process:
        """Start a `quire` process on this database, with the given settings."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("QUIRE_")}
        environment.update(
            QUIRE_HOME=str(self.home), QUIRE_DATABASE_URL=self.url, QUIRE_PLUGINS=PLUGIN
        )
        environment.update({f"QUIRE_{k.upper()}": str(v) for k, v in settings.items()})
        # Without a bytecode cache, every start would include compiling the modules.
        if environment.pop("PYTHONDONTWRITEBYTECODE", None):
            environment["PYTHONPYCACHEPREFIX"] = str(self.home.parent / "compiled")
        if concurrency:
            environment["QUIRE_CONCURRENCY"] = str(concurrency)
        with self.log.open("ab") as log:
            started = psutil.Popen(
                [sys.executable, "-m", "quire", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(started)
        return started

    def stop(self) -> None:
        """Stop every process: SIGTERM, then kill."""
        tree = [one for process in self._processes for one in process_tree(process)]
        for process in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        psutil.wait_procs(self._processes, timeout=15)
        kill(tree)
        self._processes.clear()


def process_tree(process: psutil.Process) -> list[psutil.Process]:
    """Return a process and its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return []


def kill(some: Sequence[psutil.Process]) -> None:
    """Kill processes and wait until they are dead; somebody else may take their exit status."""
    for one in some:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    end = time.monotonic() + 10
    while not all(map(_is_dead, some)) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)


def _is_dead(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _migrate(url: str) -> None:
    from quire.store import open_database

    with contextlib.closing(open_database(url)) as db:
        db.migrate()


def _url(parts: dict[str, Any]) -> str:
    from urllib.parse import quote, urlencode

    kept = {k: v for k, v in parts.items() if v is not None}
    user, name = kept.pop("user", "postgres"), kept.pop("dbname")
    password = kept.pop("password", None)
    login = quote(str(user)) + (f":{quote(str(password))}" if password else "")
    return f"postgresql://{login}@/{name}?{urlencode(kept)}"
