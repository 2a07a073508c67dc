"""A scratch home with real processes in it: starts them, signals them, reads what they left."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa

from quire.app import App
from quire.control import doctor, jobs
from quire.model.records import Submission
from quire.settings import load
from quire.store.db import sqlite
from quire.store.db.schema import queue as tables
from tests import blank
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
HANDLERS = str(Path(__file__).with_name("handlers_file.py"))
OTHERS = str(Path(__file__).with_name("other_handlers_file.py"))
#: A worker without the command line around it, whose import costs more than the worker's own.
WORKER = (
    "from quire import log, settings; from quire.celery import embedded_worker; "
    "from quire.runtime.worker import loop; log.setup(); chosen = settings.load(); "
    "raise SystemExit((embedded_worker if chosen.broker_url else loop).run(chosen))"
)
SCHEDULER = (
    "from quire import log, settings; from quire.runtime import scheduler; log.setup(); "
    "from quire.celery.dispatcher import Dispatcher; chosen = settings.load(); "
    "ring = (lambda: Dispatcher(chosen)) if chosen.broker_url else None; "
    "raise SystemExit(scheduler.run(chosen, ring))"
)
SHORT = {
    "lease_seconds": 4,
    "heartbeat_interval": 1,
    "sweep_interval": 1,
    "concurrency": 2,
    "api_port": 0,  # any: several tests run `quire up` at once
}


class Running:
    """One process that the test started, with its log."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.popen = popen
        self.pid = popen.pid
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def logs(self, *words: str) -> list[str]:
        """The lines that hold all words."""
        return [line for line in self.log.splitlines() if all(word in line for word in words)]

    def tell(self, number: int) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def tree(self) -> list[psutil.Process]:
        """The process and all its descendants."""
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.pid)
            return [own, *own.children(recursive=True)]
        return []

    def children(self) -> list[psutil.Process]:
        return self.tree()[1:]

    def tell_tree(self, number: int) -> None:
        for each in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let neither the process nor a descendant do anything meanwhile."""
        self.tell_tree(signal.SIGSTOP)
        try:
            # It may have started a child since it was looked at, but starts no other.
            until(lambda: all(is_stopped(each.pid) for each in self.tree()), what="it runs on")
            yield
        finally:
            self.tell_tree(signal.SIGCONT)

    def leave(self, within: float = 60.0) -> int:
        """Ask it to end, and return its exit code."""
        self.tell(signal.SIGTERM)
        return self.popen.wait(within)


class Site:
    """One home and its database."""

    def __init__(self, home: Path, url: str = "") -> None:
        self.home = home
        self.url = url
        self.settings: dict[str, Any] = dict(SHORT)
        self._started: list[Running] = []
        self._scheduler: Running | None = None

    @functools.cached_property
    def app(self) -> App:
        if not self.url:
            blank.put(self.home)
        plugins = (HANDLERS, OTHERS)
        return App(load({}, home=self.home, database_url=self.url, plugins=plugins, user="ada"))

    def prepare(self) -> Site:
        """Make the table that handlers write to."""
        with self.app.db.begin() as conn:
            conn.exec_driver_sql("CREATE TABLE effects (tag TEXT, task BIGINT, fence BIGINT)")
        return self

    # ------------------------------------------------------------------ processes

    def environment(self, **settings: Any) -> dict[str, str]:
        given = {"home": self.home, "plugins": HANDLERS, **self.settings, **settings}
        if self.url:
            given.setdefault("database_url", self.url)
        own = {f"QUIRE_{name.upper()}": str(value) for name, value in given.items()}
        return {**os.environ, **own, "PYTHONPATH": str(ROOT)}

    def start(
        self, *command: str, prefix: Sequence[str] = (), code: str = WORKER, **settings: Any
    ) -> Running:
        """Start `quire command`, or a bare worker, by the program in `prefix` if there is one."""
        program = ["-m", "quire", *command] if command else ["-c", code]
        return self._start([*prefix, sys.executable, *program], **settings)

    def start_code(self, code: str, *arguments: str, **settings: Any) -> Running:
        """Start a program of the test's own."""
        return self._start([sys.executable, "-c", code, *arguments], **settings)

    def _start(self, command: Sequence[str], **settings: Any) -> Running:
        log = self.home / f"log-{len(self._started)}.txt"
        with log.open("wb") as out:
            popen = subprocess.Popen(
                command,
                env=self.environment(**settings),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd=self.home,
            )
        self._started.append(Running(popen, log))
        return self._started[-1]

    def worker(self, **settings: Any) -> Running:
        """Start a worker and wait until it is registered."""
        running = self.start(**settings)
        until(
            lambda: running.logs("worker.started") or running.popen.poll() is not None,
            what=lambda: running.log,
        )
        assert running.popen.poll() is None, running.log
        return running

    def schedule(self) -> None:
        """Start a scheduler, which rings for workers that a broker serves."""
        self._scheduler = self.start(code=SCHEDULER)

    def own_processes(self) -> list[psutil.Process]:
        """Every process that was started with this home, but for `schedule`."""
        scheduler = self._scheduler.pid if self._scheduler else 0
        return [
            each
            for each in psutil.process_iter()
            if each.pid != scheduler and _home_of(each) == str(self.home)
        ]

    def close(self) -> None:
        """Kill whatever still lives, by process id."""
        if self._scheduler:
            self._scheduler.kill()
        for _ in range(5):  # a supervisor may start one more between the look and the kill
            living = self.own_processes()
            for each in living:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            for running in self._started:
                running.popen.wait(10)
            if not living:
                break
        if "app" in vars(self):
            self.app.close()

    def logs(self) -> str:
        return "\n".join(f"--- {r.pid}\n{r.log}" for r in self._started)

    # ------------------------------------------------------------------ jobs

    def submit(self, kind: str, **payload: Any) -> int:
        return self.app.submit(kind, **payload)

    def submit_many(self, kind: str, payloads: Sequence[dict[str, Any]], **wish: Any) -> list[int]:
        return self.app.submit_many([Submission(kind, each, **wish) for each in payloads])

    def stop(self, *job_ids: int) -> list[int]:
        return jobs.stop(self.app.caller, job_ids)

    def resume(self, *job_ids: int) -> list[int]:
        return jobs.resume(self.app.caller, job_ids)

    def open_gate(self, name: str = "gate") -> None:
        (self.home / name).touch()

    def rows(self, table: str, **where: Any) -> Sequence[Any]:
        columns = tables.metadata.tables[table]
        query = sa.select(columns).where(*(columns.c[k] == v for k, v in where.items()))
        with self.app.db.read() as conn:
            return conn.execute(query.order_by(*columns.primary_key)).all()

    def job(self, job_id: int) -> Any:
        [row] = self.rows("jobs", id=job_id)
        return row

    def task(self, job_id: int) -> Any:
        [row] = self.rows("tasks", job_id=job_id)
        return row

    def attempts(self, job_id: int) -> list[Any]:
        ids = {task.id for task in self.rows("tasks", job_id=job_id)}
        return [row for row in self.rows("attempts") if row.task_id in ids]

    def outcomes(self, job_id: int) -> list[str]:
        return [row.outcome for row in sorted(self.attempts(job_id), key=lambda r: r.fence)]

    def states(self, job_ids: Sequence[int] | None = None) -> Counter[str]:
        wanted = None if job_ids is None else set(job_ids)
        rows = self.rows("jobs")
        return Counter(row.state for row in rows if wanted is None or row.id in wanted)

    def until_over(self, job_ids: Sequence[int] | int, within: float = 60.0) -> Counter[str]:
        """Wait for jobs to end; returns how many ended in which state."""
        wanted = [job_ids] if isinstance(job_ids, int) else list(job_ids)

        def over() -> bool:
            return not {"pending", "running"} & set(self.states(wanted))

        until(over, within=within, what=lambda: f"{self.states(wanted)}\n{self.logs()}")
        return self.states(wanted)

    # ------------------------------------------------------------------ effects

    def effects(self) -> list[str]:
        with self.app.db.read() as conn:
            return sorted(conn.exec_driver_sql("SELECT tag FROM effects").scalars())

    def trace(self, *words: object) -> list[list[str]]:
        """The lines of the trace that begin with these words."""
        path = self.home / "trace.txt"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        start = [str(word) for word in words]
        return [line for line in lines if line[: len(start)] == start]

    def until_traced(self, *words: object, times: int = 1, within: float = 60.0) -> list[str]:
        """Wait for a line of the trace and return the last one."""
        until(
            lambda: len(self.trace(*words)) >= times,
            within=within,
            what=lambda: f"no {words}: {self.trace()}\n{self.logs()}",
        )
        return self.trace(*words)[-1]

    def is_being_written(self) -> bool:
        """Tell whether some transaction of the processes under test is open."""
        if self.url:
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND left(state, 19) = 'idle in transaction' AND pid <> pg_backend_pid()"
            )
            with self.app.db.read() as conn:
                return bool(conn.exec_driver_sql(query).scalar_one())
        # The same library as the app's: closing a file with another one would drop its locks.
        engine = sqlite.sqlite_module()
        with contextlib.closing(engine.connect(str(self.home / "quire.db"), timeout=0)) as conn:
            try:
                conn.execute("BEGIN IMMEDIATE")
            except engine.OperationalError:
                return True
        return False

    def assert_healthy(self) -> None:
        """Ask the doctor, and check that each task was finished by one run at most."""
        report = doctor.examine(self.app.db)
        assert report.is_healthy, report.violations
        done = Counter(row.task_id for row in self.rows("attempts") if row.outcome == "done")
        assert {task: runs for task, runs in done.items() if runs > 1} == {}


def _home_of(one: psutil.Process) -> str | None:
    try:
        return one.environ().get("QUIRE_HOME")
    except (psutil.Error, OSError):
        return None


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


def pause(seconds: float) -> None:
    """Let real time pass where that itself is the subject, as with a lease that must end."""
    threading.Event().wait(seconds)
