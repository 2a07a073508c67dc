"""Two tenants of one running Quire: one that is measured, and one that does its worst."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import replace

import httpx

from quire.control import access
from tests.api.house import sailing_book
from tests.integration.processes import Site
from tests.waiting import until

VICTIM, ATTACKER = "default", "acme"
PLAIN = {"name": "plain", "settings": {"embedder": "none", "ocr": "never"}}
#: What the victim asks for, and how.
ASKED = ("list", "search", "upload")


class Neighbours:
    """A worker and an API with some documents of both tenants."""

    def __init__(self, site: Site, *, documents: int) -> None:
        site.settings |= {"api_auth": 1, "api_requests_per_minute": 0, "api_max_connections": 4000}
        self.site = site
        self.tokens = [self._token(ATTACKER, f"m{n}") for n in range(6)]
        self._victim_token = self._token(VICTIM, "victim")
        api = site.start("api")
        [started] = until(lambda: api.logs("api.started"), what=lambda: api.log)
        self.url = next(word[4:] for word in started.split() if word.startswith("url="))
        site.worker()
        self.victim = self._client(self._victim_token)
        self.other = self._client(self.tokens[0])
        for client, text in ((self.victim, "tide ship "), (self.other, "tide and of the ")):
            assert client.post("/api/corpora", json=PLAIN).status_code == 201
            for number in range(documents):
                self.upload(client, f"{number}.txt", (f"{text} number{number} " * 300).encode())
        self.book = self.upload(self.other, "book.pdf", sailing_book())
        until(lambda: self.is_ready(self.other, self.book), what=site.logs)

    def _token(self, tenant: str, user: str) -> str:
        caller = replace(self.site.app.caller, tenant=tenant, user=user)
        access.create_user(caller, user, "member")
        return str(access.create_token(caller, "t", ["write"], None, user=user)["token"])

    def _client(self, token: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=120)

    def upload(self, client: httpx.Client, name: str, content: bytes) -> int:
        """Upload a file; returns its document."""
        where = {"name": name, "corpus": "plain"}
        made = client.post("/api/documents", params=where, content=content)
        assert made.status_code == 201, made.text
        return int(made.json()["documents"][0]["id"])

    def is_ready(self, client: httpx.Client, document: int) -> bool:
        """Tell whether a document has been read."""
        return bool(client.get(f"/api/documents/{document}").json()["state"] == "success")

    def ask(self, name: str) -> float:
        """Ask for one thing as the victim; returns the seconds until the answer."""
        began = time.perf_counter()
        if name == "list":
            answer = self.victim.get("/api/documents", params={"limit": 50})
            assert answer.status_code == 200, answer.text
        elif name == "search":
            where = {"q": "tide number7", "mode": "text"}
            answer = self.victim.get("/api/search", params=where)
            assert answer.status_code == 200, answer.text
        else:
            self.upload(self.victim, f"u{time.time_ns()}.txt", os.urandom(8).hex().encode())
        return time.perf_counter() - began

    def seconds_to_read(self) -> float:
        """Return how long an upload of the victim takes until it can be found."""
        began = time.perf_counter()
        document = self.upload(self.victim, "new.txt", os.urandom(8).hex().encode())
        until(lambda: self.is_ready(self.victim, document), what=self.site.logs)
        return time.perf_counter() - began


@contextlib.contextmanager
def neighbours(site: Site, *, documents: int) -> Iterator[Neighbours]:
    """Two tenants of a site until the end of the block."""
    both = Neighbours(site, documents=documents)
    try:
        yield both
    finally:
        both.victim.close()
        both.other.close()
