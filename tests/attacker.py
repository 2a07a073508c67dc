"""A tenant that does its worst to an API: what it keeps open, and what it asks again and again.

`python -m tests.attacker NICENESS URL DOCUMENT KIND TOKEN…` attacks until its input ends, then
prints how many answers of each sort it got. It is a process of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx

ROOT = Path(__file__).resolve().parents[1]
#: How many of each: more than any limit lets in at once.
TRICKLES, STREAMS, ASKING = 40, 250, 12
#: What is asked again and again, by as many threads each.
HARD_QUERIES = (
    " ".join(f"word{n}" for n in range(60)),
    '"the tide" the and of a in to it is that was for on with as at by from',
    "t* th* ti* " + "tide OR " * 40 + "tide",
    "NEAR(tide ship, 90) -tide ((((((((tide))))))))",
)


class Attacker:
    """Threads that attack until they are told to end; they count the answers by status."""

    def __init__(self, url: str, document: str, kind: str, tokens: Sequence[str]) -> None:
        self._url, self._document, self._kind = url, document, kind
        self._tokens = itertools.cycle(tokens)
        self._stop = threading.Event()
        self.answers: Counter[str] = Counter()

    def run(self) -> None:
        """Attack in every way at the same time, until the input ends."""
        ways: list[tuple[int, Callable[[], None]]] = [
            (1, self._trickle), (1, self._open_streams), (ASKING, self._search),
            (ASKING, self._ask_pictures), (2, self._flood), (ASKING, self._list),
        ]  # fmt: skip
        threads = [threading.Thread(target=way) for many, way in ways for _ in range(many)]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self._stop.set()
        for thread in threads:
            thread.join()

    def _client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {next(self._tokens)}"}
        return httpx.Client(base_url=self._url, headers=headers, timeout=60)

    def _again(self, name: str, ask: Callable[[httpx.Client, int], httpx.Response]) -> None:
        """Ask until the end; who is told to wait asks again, a little later."""
        with self._client() as client:
            for number in itertools.count():
                if self._stop.is_set():
                    return
                with contextlib.suppress(httpx.HTTPError):
                    answer = ask(client, number)
                    self.answers[f"{name} {answer.status_code}"] += 1
                    if answer.status_code in (429, 503):
                        self._stop.wait(0.1)

    def _search(self) -> None:
        self._again(
            "search",
            lambda client, n: client.get(
                "/api/search",
                params={"q": HARD_QUERIES[n % len(HARD_QUERIES)], "mode": "text", "limit": 50},
            ),
        )

    def _list(self) -> None:
        places = ("/api/documents?limit=200&q=o", "/api/jobs?limit=200", "/", "/api/status")
        self._again("list", lambda client, n: client.get(places[n % len(places)]))

    def _ask_pictures(self) -> None:
        self._again(
            "picture",
            lambda client, n: client.get(
                f"/api/documents/{self._document}/pages/{n % 3 + 1}/image",
                params={"width": 600 + n % 1400},
            ),
        )

    def _flood(self) -> None:
        body = {"kind": self._kind, "payload": {"tag": "flood"}, "priority": 1, "max_attempts": 99}
        self._again("flood", lambda client, n: client.post("/api/jobs", json=body))

    def _trickle(self) -> None:
        """Keep uploads open with a byte now and then."""
        with contextlib.ExitStack() as opened:
            sockets = [opened.enter_context(self._connected()) for _ in range(TRICKLES)]
            for number, sock in enumerate(sockets):
                self._send(sock, f"POST /api/documents?name={number}.txt", "Content-Length: 900000")
            while not self._stop.wait(0.5):
                for sock in sockets:
                    with contextlib.suppress(OSError):
                        sock.send(b"x")

    def _open_streams(self) -> None:
        with contextlib.ExitStack() as opened:
            for _ in range(STREAMS):
                with contextlib.suppress(OSError):
                    sock = opened.enter_context(self._connected())
                    self._send(sock, "GET /api/events")
            self._stop.wait()

    def _connected(self) -> socket.socket:
        parts = urlsplit(self._url)
        return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30)

    def _send(self, sock: socket.socket, line: str, *more: str) -> None:
        head = [
            f"{line} HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {next(self._tokens)}",
        ]
        sock.sendall("\r\n".join([*head, *more, "", ""]).encode())


@contextlib.contextmanager
def attacking(
    url: str, document: int, kind: str, tokens: Sequence[str], *, niceness: int = 0
) -> Iterator[Callable[[], Counter[str]]]:
    """Attack from another process; yields what ends it and returns the answers that it got.

    A nice one stands for another machine, but on a busy one it may not get to ask at all.
    """
    module = [sys.executable, "-m", "tests.attacker"]
    command = [*module, str(niceness), url, str(document), kind, *tokens]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:

        def end() -> Counter[str]:
            return Counter(json.loads(process.communicate("")[0]))

        try:
            yield end
        finally:
            process.kill()


if __name__ == "__main__":
    os.nice(int(sys.argv[1]))
    attacker = Attacker(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    attacker.run()
    print(json.dumps(attacker.answers))
