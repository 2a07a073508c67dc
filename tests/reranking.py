"""A server on loopback that speaks Cohere's rerank, and answers as it is told."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANGS, DRIPS = -1, -2


class Server(ThreadingHTTPServer):
    """Answers with what is in `script`, then with the scores that `score` gives each document."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.script: deque[tuple[int, dict[str, str], Any]] = deque()
        self.released = threading.Event()
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.score: Callable[[str], float] = lambda document: 1 / (1 + len(document))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that hung up: a test is about that."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/"


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append({"path": self.path, **body})
        self.server.headers.append(dict(self.headers))
        scores = [self.server.score(text) for text in body["documents"]]
        usual: tuple[int, dict[str, str], Any] = (200, {}, results(scores))
        status, headers, content = self.server.script.popleft() if self.server.script else usual
        if status == HANGS:
            self.server.released.wait(30)
            self.close_connection = True
            return
        sent = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response_only(abs(status) if status > 0 else 200)
        for name, value in {"content-length": str(len(sent)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)
        if status == DRIPS:
            self.server.released.wait(30)

    def do_GET(self) -> None:
        self.server.asked.append({"path": self.path})

    def log_message(self, format: str, *args: object) -> None:
        pass


def results(scores: Sequence[float]) -> dict[str, Any]:
    """Scores as Cohere answers: best first, each with the place of its document."""
    rows = [{"index": at, "relevance_score": score} for at, score in enumerate(scores)]
    return {"id": "r", "results": sorted(rows, key=lambda row: -row["relevance_score"]), "meta": {}}


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
