"""Copies of a PostgreSQL database, made and dropped by the server while the tests go on.

Copying and dropping some hundred files takes longer than many a test, mostly in waiting. So the
next copy is asked for when one is taken, and its answer is read when the next one is needed.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq

if TYPE_CHECKING:
    from tests.postgres import Server


class Copies:
    """Copies of one template; until the end of the block."""

    def __init__(self, server: Server, template: str) -> None:
        self.server = server
        self._template = template
        self._maker = _Errand(server)
        self._dropper = _Errand(server)
        # Copies in the kernel, where the server was built with it.
        self._maker.send("SET file_copy_method = clone")
        with contextlib.suppress(RuntimeError):
            self._maker.wait()
        self._next = self._make()

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *_: object) -> None:
        self._maker.wait()
        self.drop(self._next)
        self._dropper.wait()
        self._maker.close()
        self._dropper.close()

    def take(self) -> str:
        """Return the name of a copy, and ask for the one after it."""
        self._maker.wait()
        name, self._next = self._next, self._make()
        return name

    def drop(self, name: str) -> None:
        """Ask to drop a copy, whoever is still connected to it."""
        self._dropper.wait()
        self._dropper.send(f"DROP DATABASE {name} WITH (FORCE)")

    def _make(self) -> str:
        name = f"t_{uuid.uuid4().hex[:12]}"
        self._maker.send(f"CREATE DATABASE {name} TEMPLATE {self._template} STRATEGY file_copy")
        return name


class _Errand:
    """A connection of its own for statements that nobody waits for at once."""

    def __init__(self, server: Server) -> None:
        self._conn = psycopg.connect(server.url, autocommit=True)

    def send(self, statement: str) -> None:
        self._conn.pgconn.send_query(statement.encode())

    def wait(self) -> None:
        """Wait for the end of the last statement; fail if it failed."""
        faults = []
        while (result := self._conn.pgconn.get_result()) is not None:
            if result.status != pq.ExecStatus.COMMAND_OK:
                faults.append(result.get_error_message())
        if faults:
            raise RuntimeError("; ".join(faults))

    def close(self) -> None:
        self._conn.close()
