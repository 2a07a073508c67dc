"""A real server on a free port of this machine, in a thread, and a reader of its streams."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
from fastapi import FastAPI

from quire.app import App
from quire.settings import load
from quire.store.queue import events
from quire.web import server
from tests import blank, errands
from tests.waiting import until

LONG = httpx.Timeout(30.0)


class Served:
    """One server with its app."""

    def __init__(self, app: App, port: int = 0, api: FastAPI | None = None) -> None:
        self.app = app
        self.api = api or server.create(app)
        self.server = server.Server(self.api, server.bound("127.0.0.1", port))
        self.url = self.server.url
        self.http = httpx.Client(base_url=self.url, timeout=LONG)
        self._thread = threading.Thread(target=self.server.serve_until_told)

    def start(self) -> Served:
        self._thread.start()
        until(lambda: self.server.started)
        return self

    def stop(self) -> None:
        """Stop it as a signal would, and wait."""
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()
        self.http.close()

    def happen(self, *names: str, job_id: int | None = None, tenant: str = "default") -> None:
        """Record events in one transaction."""
        told = [events.Event(job_id, name, tenant=tenant) for name in names]
        self.app.db.write(lambda conn, now: events.record(conn, told, now=now))


@contextlib.contextmanager
def served(**settings: Any) -> Iterator[Served]:
    """Serve a home until the end of the block; without authentication unless asked for."""
    given = {"api_auth": False, "api_requests_per_minute": 0, "user": "ada", **settings}
    given.setdefault("plugins", (errands.PLUGIN,))
    if not given.get("database_url"):
        blank.put(given["home"])
    app = App(load({}, **given), patient=True)
    running = Served(app).start()
    try:
        yield running
    finally:
        running.stop()
        app.close()


class Message(dict[str, Any]):
    """The data of one message of a stream."""

    cursor: str | None = None
    kind: str = "message"


class Stream:
    """One open stream, read message by message."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.cursor: str | None = None
        self.comments = 0
        self._lines = response.iter_lines()

    def next(self, *, hints: bool = False) -> Message:
        """Return the next message; hints that the queue changed are passed over."""
        while (found := self._message()) is not None:
            if hints or found.get("name") != "queue.changed":
                return found
        raise StopIteration

    def names(self, count: int) -> list[str]:
        return [self.next()["name"] for _ in range(count)]

    def _message(self) -> Message | None:
        message, is_any = Message(), False
        for line in self._lines:
            field, _, value = line.partition(": ")
            if field == "data":
                message.update(json.loads(value))
                is_any = True
            elif field == "event":
                message.kind = value
            elif field == "id":
                self.cursor = message.cursor = value
            elif line.startswith(":"):
                self.comments += 1
            elif not line and is_any:
                return message
        return None


@contextlib.contextmanager
def stream(at: Served, **options: Any) -> Iterator[Stream]:
    """Open a stream and wait until it has begun."""
    headers = options.pop("headers", {})
    with at.http.stream("GET", "/api/events", params=options, headers=headers) as response:
        assert response.status_code == 200, response.read()
        opened = Stream(response)
        # The first lines tell the cursor, before any message.
        for line in opened._lines:
            if line.startswith("id: "):
                opened.cursor = line.removeprefix("id: ")
            if not line:
                break
        yield opened
