"""A server on loopback that speaks OpenAI's embeddings, and answers as it is told."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANGS = -1


class Server(ThreadingHTTPServer):
    """Answers with what is in `script`, then with vectors of three dimensions."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.script: deque[tuple[int, dict[str, str], Any]] = deque()
        self.released = threading.Event()
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.meanwhile: Callable[[], None] = lambda: None  # happens while a client waits

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that hung up: one test is about that."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/"


class Waiting:
    """A clock that only moves when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slices: list[float] = []
        self.whys: list[str] = []
        self.pauses: list[float] = []  # from one look before a request to the next

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.slices.append(seconds)
        if self.pauses:
            self.pauses[-1] += seconds

    def meanwhile(self, why: str | None) -> None:
        """Note what a task is told while it waits."""
        if why is None:
            self.pauses.append(0.0)
        else:
            self.whys.append(why)


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append({"path": self.path, **body})
        self.server.headers.append(dict(self.headers))
        self.server.meanwhile()
        usual: tuple[int, dict[str, str], Any] = (200, {}, vectors(body["input"]))
        status, headers, content = self.server.script.popleft() if self.server.script else usual
        if status == HANGS:
            self.server.released.wait(30)
        if status <= 0:
            self.close_connection = True
            return
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response_only(status)
        for name, value in {**headers, "content-length": str(len(sent))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: object) -> None:
        pass


def vectors(texts: list[str], size: int = 3) -> dict[str, Any]:
    """One vector a text, told apart by its length; in reverse, as the order is free."""
    rows = [
        {"index": n, "embedding": [float(len(text)), *[1.0] * (size - 1)]}
        for n, text in enumerate(texts)
    ]
    return {"data": rows[::-1], "usage": {"total_tokens": 7}}


def serving() -> Iterator[Server]:
    """Serve until the fixture that takes from this is over."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()
