"""An API in this process: a shelf of documents, and clients that use the real gate."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from fastapi.testclient import TestClient

from quire.demo import samples
from tests import errands, signing
from tests.shelf import Shelf
from tests.waiting import until

#: Settings that keep an upload from loading a model.
PLAIN = {"embedder": "none", "ocr": "never"}


def sailing_book() -> bytes:
    """A PDF of three pages."""
    return samples.pdf(
        [
            samples.text_page(["The pilot reads the tide."]),
            samples.text_page(["Copper and barley lie in the harbour."]),
            samples.text_page(["The ledger is closed."]),
        ]
    )


class House:
    """The application over a shelf; its clients are made where they are first used."""

    def __init__(self, folder: Path, url: str = "", **settings: Any) -> None:
        settings.setdefault("api_requests_per_minute", 0)
        settings.setdefault("plugins", (errands.PLUGIN,))
        self.folder = folder
        self.shelf = Shelf(folder / "home", folder / "in", url, **settings)
        self.api = signing.api_of(self.shelf.app)

    @functools.cached_property
    def operator(self) -> TestClient:
        """An instance admin."""
        return signing.by_token(self.api, "instance-admin")

    @functools.cached_property
    def admin(self) -> TestClient:
        return signing.by_token(self.api, "admin")

    @functools.cached_property
    def member(self) -> TestClient:
        return signing.by_token(self.api, "member")

    @functools.cached_property
    def viewer(self) -> TestClient:
        return signing.by_token(self.api, "viewer")

    @functools.cached_property
    def stranger(self) -> TestClient:
        return signing.stranger(self.api)

    @functools.cached_property
    def foreigner(self) -> TestClient:
        """An admin of another tenant."""
        return signing.by_token(self.api, "admin", tenant="other")

    def plain_corpus(self, name: str = "plain", client: TestClient | None = None) -> str:
        made = (client or self.admin).post("/api/corpora", json={"name": name, "settings": PLAIN})
        assert made.status_code == 201, made.text
        return name

    def upload(self, name: str, content: bytes, client: TestClient | None = None) -> int:
        """Upload a file into the plain corpus and take it in; returns the document."""
        client = client or self.admin
        if client.get("/api/corpora/plain").status_code == 404:
            self.plain_corpus(client=client)
        made = client.post("/api/documents", params={"name": name, "corpus": "plain"},
                           content=content)  # fmt: skip
        assert made.status_code == 201, made.text
        self.shelf.drain()
        [document] = made.json()["documents"]
        return int(document["id"])

    def submit(self, client: TestClient | None = None, **body: Any) -> int:
        made = (client or self.admin).post("/api/jobs", json={"kind": "errand", **body})
        assert made.status_code == 201, made.text
        return int(made.json()["id"])

    def parts(self) -> list[Path]:
        """What uploads have left on the disk beside whole blobs."""
        folder = self.folder / "home" / "blobs" / "parts"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def has_part(self) -> bool:
        """Tell whether bytes of an upload lie on the disk; a part may be renamed while we look."""
        for path in self.parts():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size:
                    return True
        return False

    @contextlib.contextmanager
    def served(self) -> Iterator[int]:
        """Serve the API on a free port of this machine, for tests that need real sockets."""
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(self.api, log_level="critical", lifespan="off", access_log=False)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: server.started, what="the server does not start")
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
            listener.close()

    def close(self) -> None:
        for name in ("operator", "admin", "member", "viewer", "stranger", "foreigner"):
            if name in vars(self):
                vars(self)[name].close()
        self.shelf.close()
