"""A PostgreSQL server and the standby that follows it, for tests that lose the first of them."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests import clusters
from tests.postgres import Server
from tests.waiting import until


class Pair:
    """Two servers on ports of the loopback; `primary` is the one that is written to."""

    def __init__(self, folder: Path, seed: Path) -> None:
        self._folder = folder
        self._count = 0
        self.primary = self._server(_free_port())
        self.primary.create(seed)
        self.primary.start()
        self.standby = self._follow(self.primary, _free_port())
        ports = (self.primary.port, self.standby.port)
        #: Both, the first one first, as somebody writes it who leaves the rest to the driver.
        self.url = f"postgresql://postgres@{','.join(f'127.0.0.1:{p}' for p in ports)}/quire"

    def wait_for_standby(self) -> None:
        """Confirm no commit from now on that the standby has not stored."""
        name = self.standby.folder.name
        tell(self.primary, f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        tell(self.primary, "SELECT pg_reload_conf()")
        states = "SELECT sync_state FROM pg_stat_replication"
        until(lambda: ask(self.primary, states) == [("sync",)])

    def fail_over(self) -> None:
        """Lose the primary without a word, and promote the standby."""
        self.primary.kill()
        self.promote()

    def promote(self) -> None:
        """Make the standby the primary, whatever the other one does."""
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def rebuild(self) -> None:
        """Let the lost server come back at its place, as a standby of the one that took over."""
        self.standby = self._follow(self.primary, self.standby.port)

    def _server(self, port: int) -> Server:
        self._count += 1
        return Server(self._folder / f"s{self._count}", "quire", address="127.0.0.1", port=port)

    def _follow(self, primary: Server, port: int) -> Server:
        made = self._server(port)
        made.create_standby(primary)
        made.start()
        return made


@contextmanager
def paired(run_folder: Path) -> Iterator[Pair]:
    """Make a pair in the run's folder, and take it down."""
    folder = Path(tempfile.mkdtemp(prefix="f", dir=run_folder))
    folder.chmod(0o755)
    try:
        pair = Pair(folder, clusters.seed(run_folder))
        yield pair
    finally:
        for each in folder.iterdir():
            if (each / "postmaster.pid").exists():
                Server(each).stop("immediate")
        shutil.rmtree(folder)


def tell(server: Server, statement: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(statement.encode())


def ask(server: Server, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(server.url, autocommit=True) as admin:
        return admin.execute(query.encode()).fetchall()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
