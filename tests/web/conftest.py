"""A dashboard over a shelf of documents, and visitors of each role who sign in by cookie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from quire.api import page_renderer
from quire.api.auth import authenticate
from quire.control import corpora
from quire.demo import samples
from quire.web import server
from tests import signing
from tests.shelf import PLAIN, Shelf
from tests.web.reading import Visitor

#: Text that would do something if it were not escaped.
EVIL = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&"


class Front:
    """The dashboard, its shelf, and who visits it."""

    def __init__(self, folder: Path, url: str = "", **settings: Any) -> None:
        self.shelf = Shelf(
            folder / "home", folder / "in", url, api_requests_per_minute=0, **settings
        )
        self.api = server.create(self.shelf.app)
        self._clients: list[TestClient] = []

    def visitor(self, role: str = "instance-admin", tenant: str | None = None) -> Visitor:
        client = signing.by_session(self.api, role, tenant=tenant)
        # A form brings its csrf itself.
        del client.headers[authenticate.CSRF_HEADER]
        self._clients.append(client)
        return Visitor(client)

    def fill(self) -> dict[str, int]:
        """Take in files, some of which cannot be read, and leave jobs in each state."""
        shelf = self.shelf
        pages = [samples.text_page([f"The tide turns at noon {n}."]) for n in range(15)]
        shelf.put("book.pdf", samples.pdf(pages))
        shelf.put("broken.pdf", samples.pdf(pages)[:300])
        shelf.put(f"{EVIL.replace('/', '')}.txt", f"{EVIL} The tide is high.")
        with_pictures = {**PLAIN, "thumbnails": "true"}
        known = {"ingest": shelf.ingest(settings=with_pictures)}
        ids = {row.name: row.id for row in shelf.rows("documents")}
        known.update(book=ids["book.pdf"], broken=ids["broken.pdf"])
        known["evil"] = next(i for name, i in ids.items() if name.startswith("<script>"))
        known["waiting"] = shelf.app.submit("ingest", sources=[EVIL], settings=PLAIN)
        known["stopped"] = shelf.app.submit("ingest", sources=["x"], settings=PLAIN)
        shelf.stop(known["stopped"])
        known["cancelled"] = shelf.app.submit("ingest", sources=["y"], settings=PLAIN)
        shelf.cancel(known["cancelled"])
        corpora.create(shelf.app.caller, EVIL, {"delimiter": "\n\n", "chunk_tokens": 200})
        corpora.create(shelf.app.caller, "plain", {})
        return known

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.shelf.close()
        page_renderer.shared.close()


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    """A dashboard on SQLite."""
    made = Front(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres"])
def each_front(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Front]:
    """A dashboard on each database in turn."""
    url = request.getfixturevalue("pg_url") if request.param == "postgres" else ""
    made = Front(tmp_path, url)
    yield made
    made.close()
