"""Whole jobs from the web, Google Drive and a bucket: each file ends as it must, and says why."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from quire.store.reports import jobs as job_reports
from tests import documents
from tests.integration.fetch.fetch_places import PDF, authorized_user, put_object
from tests.servers import FOLDER, DriveFile, DriveServer, FaultyServer, FileServer, Proxy, answer
from tests.shelf import Shelf

GOOD = {
    "a.txt": b"herring words",
    "b.html": b"<p>lantern words</p>",
    "c.pdf": documents.pdf("mooring words", "anchor words"),
}
#: A file that vanishes, one that is no PDF inside, and one that is asked for too soon.
GONE, DAMAGED, BUSY = "gone.txt", "damaged.pdf", "busy.txt"
FILES = {**GOOD, GONE: b"vanished words", DAMAGED: b"%PDF-1.4 junk", BUSY: b"patient words"}
WORDS = ("herring words", "lantern words", "anchor words", "patient words")


class Far:
    """A place with the files, the server that speaks for it, and the settings that reach it."""

    def __init__(self, server: FaultyServer, sources: list[str], **settings: Any) -> None:
        self.server, self.sources, self.settings = server, sources, settings
        #: How the path ends that the bytes of a file are asked for by.
        self.endings = {name: f"/{name}" for name in FILES}


@pytest.fixture
def far(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Far]:
    yield from {"web": _web, "drive": _drive, "bucket": _bucket}[request.param](request, tmp_path)


def _web(request: pytest.FixtureRequest, folder: Path) -> Iterator[Far]:
    with FileServer() as server:
        urls = [server.put(f"/files/{name}", content) for name, content in FILES.items()]
        yield Far(server, urls)


def _drive(request: pytest.FixtureRequest, folder: Path) -> Iterator[Far]:
    with DriveServer(page=2) as server:
        server.put(DriveFile("top-folder-id", "Top", FOLDER, "root"))
        for at, (name, content) in enumerate(FILES.items()):
            kind = PDF if name.endswith(".pdf") else "text/plain"
            server.put(DriveFile(f"file-id-{at:06}", name, kind, "top-folder-id", content))
        user = authorized_user(server, folder)
        far = Far(server, ["gdrive:top-folder-id"], gdrive_endpoint=server.url)
        far.settings["gdrive_credentials"] = str(user)
        far.endings = {name: f"/file-id-{at:06}" for at, name in enumerate(FILES)}
        yield far


def _bucket(request: pytest.FixtureRequest, folder: Path) -> Iterator[Far]:
    moto_url = request.getfixturevalue("moto_url")
    patch = request.getfixturevalue("monkeypatch")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        patch.setenv(name, "testing")
    patch.setenv("AWS_REGION", "us-east-1")
    bucket = f"b-{uuid.uuid4().hex[:12]}"
    put_object(moto_url, bucket, "", b"")
    for name, content in FILES.items():
        put_object(moto_url, bucket, f"in/{name}", content, "application/octet-stream")
    upstream = urlsplit(moto_url)
    with Proxy(upstream.hostname or "", upstream.port or 0) as server:
        yield Far(server, [f"s3://{bucket}/in/"], bucket_endpoint=server.url)


@pytest.mark.parametrize("far", ["web", "drive", "bucket"], indirect=True)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_job_of_a_far_place_takes_in_what_is_good_and_says_why_the_rest_failed(
    far: Far, database: str, request: pytest.FixtureRequest, tmp_path: Path
):
    url = request.getfixturevalue("pg_url") if database == "postgres" else ""
    shelf = Shelf(
        tmp_path / "home", tmp_path / "in", url, fetch_allow_private_addresses=True, **far.settings
    )
    far.server.at = {
        far.endings[GONE]: [answer(404)],
        far.endings[BUSY]: [answer(429, retry_after="200")],
    }
    job_id = shelf.submit(*far.sources)
    shelf.step(len(FILES) + 1)
    [waiting] = [row for row in shelf.tasks("document") if row.state == "blocked"]
    assert "HTTP 429 from the server, and the server asks to wait 200 s" in waiting.error
    assert waiting.due_at - shelf.clock.now().wall == pytest.approx(200, abs=1)
    shelf.drain()
    with shelf.db.read() as conn:
        job = job_reports.job(conn, shelf.app.settings.tenant, job_id, now=0.0)
    assert job is not None
    assert {row.name: row.state for row in shelf.rows("documents")} == {
        **dict.fromkeys(FILES, "success"), GONE: "failed", DAMAGED: "failed",
    }  # fmt: skip
    assert all(shelf.is_found(words) for words in WORDS)
    assert shelf.document(GONE).error.startswith(f"{GONE}: not found (HTTP 404")
    assert "is damaged or cut off" in shelf.document(DAMAGED).error
    assert shelf.document(BUSY).error is None
    assert (job["state"], job["failed_files"]) == ("completed", 2)
    assert job["error"].startswith("2 of 6 files failed; the last: ")
    assert job["files"] == {"success": 4, "failed": 2}
    assert job["progress"] == 1.0
    # A job that is asked to brings again what failed, and no byte of what is the same.
    far.server.asked.clear()
    shelf.ingest(*far.sources, retry_failed=True)
    assert shelf.is_found("vanished words")
    again = {e for e in far.endings.values() if any(_is_of(e, a) for a in far.server.bytes_asked())}
    assert again == {far.endings[GONE], far.endings[DAMAGED]}
    shelf.assert_healthy()
    shelf.close()


def _is_of(ending: str, asked: Any) -> bool:
    return bool(asked.path.endswith(ending))
