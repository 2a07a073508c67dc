"""Documents whose bytes are in a bucket: machines share a database and the bucket, no folder."""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from quire.api import page_renderer
from quire.control import documents as verbs
from quire.control import outages
from quire.control.explain.document import explain_document
from quire.fetch import object_store
from quire.fetch.blobs.backend import open_blobs
from quire.fetch.blobs.bucket import BlobBucket
from quire.runtime import scheduler
from quire.store.documents import pages
from quire.store.documents.gc import Collector
from tests import buckets, servers
from tests.api.house import PLAIN, House, sailing_book
from tests.integration.blobs.test_faults import Faulty
from tests.shelf import Shelf

BOOK = sailing_book()


@pytest.fixture
def proxy(moto_url: str) -> Iterator[Faulty]:
    host, port = moto_url.removeprefix("http://").split(":")
    with Faulty(host, int(port)) as made:
        yield made


@pytest.fixture
def chosen(
    bucket_url: str, proxy: Faulty, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """The settings of an installation on the bucket, which is not waited for long."""
    monkeypatch.setattr(object_store, "Timeouts", lambda: buckets.SHORT)
    yield {"blobs": bucket_url, "bucket_endpoint": proxy.url}
    page_renderer.shared.close()


@pytest.fixture
def shelf(tmp_path: Path, chosen: dict[str, Any]) -> Iterator[Shelf]:
    made = Shelf(tmp_path / "home", tmp_path / "in", **chosen)
    yield made
    made.close()


def blobs_of(shelf: Shelf) -> BlobBucket:
    found = open_blobs(shelf.app.settings.for_children)
    assert isinstance(found, BlobBucket)
    return found


def document_of(shelf: Shelf, name: str = "a.pdf") -> Any:
    [row] = shelf.rows("documents", name=name)
    return row


def test_an_api_and_a_worker_share_only_the_database_and_the_bucket(
    tmp_path: Path, pg_url: str, chosen: dict[str, Any]
):
    (tmp_path / "api").mkdir()
    house = House(tmp_path / "api", pg_url, **chosen)
    worker = Shelf(tmp_path / "worker", tmp_path / "in", pg_url, **chosen)
    house.plain_corpus()
    made = house.admin.post(
        "/api/documents", params={"name": "Tides.pdf", "corpus": "plain"}, content=BOOK
    )
    assert made.status_code == 201, made.text
    assert {ended.outcome for ended in worker.drain()} <= {"done", "settled"}
    [told] = made.json()["documents"]
    found = house.admin.get(f"/api/documents/{told['id']}").json()
    assert (found["state"], found["pages"]) == ("success", 3)
    there = f"/api/documents/{told['id']}"
    assert house.admin.get(f"{there}/file").content == BOOK
    assert house.admin.get(f"{there}/thumbnail").headers["content-type"] == "image/jpeg"
    assert house.admin.get(f"{there}/pages/2/image").headers["content-type"] == "image/png"
    assert not (tmp_path / "worker" / "blobs").exists()
    worker.assert_healthy()
    worker.close()
    house.close()


def test_a_link_gives_the_original_under_its_name(tmp_path: Path, chosen: dict[str, Any]):
    house = House(tmp_path, **chosen, blob_presigned_urls=True)
    name = "Gezeiten & Häfen.pdf"
    document = house.upload(name, BOOK)
    file = f"/api/documents/{document}/file"
    answer = house.admin.get(file, params={"download": True}, follow_redirects=False)
    assert answer.status_code == 307
    assert answer.headers["cache-control"] == "no-store"
    got, headers = fetched(answer.headers["location"])
    assert got == BOOK
    assert headers["content-disposition"].startswith("attachment; filename*=utf-8''Gezeiten%20%26")
    shown = house.admin.get(file, follow_redirects=False).headers["location"]
    assert fetched(shown)[1]["content-type"] == "application/pdf"
    # A page of ours may show nothing from elsewhere, so what it shows goes through the API.
    within = house.admin.get(file, headers={"sec-fetch-dest": "image"}, follow_redirects=False)
    assert (within.status_code, within.content) == (200, BOOK)
    page = f"/api/documents/{document}/pages/2/image"
    drawn = house.admin.get(page, headers={"sec-fetch-dest": "image"}).content
    for _ in range(2):  # the second is not drawn again
        linked = house.admin.get(page, follow_redirects=False)
        got, headers = fetched(linked.headers["location"])
        assert (linked.status_code, headers["content-type"]) == (307, "image/png")
        assert got == drawn
    blobs = blobs_of(house.shelf)
    assert sum(".pages/2-900.png" in key for key in buckets.keys(blobs)) == 1
    blobs.delete(hashlib.sha256(BOOK).hexdigest())  # and what was drawn from it goes with it
    assert not any(".pages/" in key for key in buckets.keys(blobs))
    refused = house.foreigner.get(file, follow_redirects=False)
    assert refused.status_code == 404
    house.close()


def fetched(url: str) -> tuple[bytes, dict[str, str]]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    connection.request("GET", f"{parts.path}?{parts.query}")
    got = connection.getresponse()
    body, headers = got.read(), {key.lower(): value for key, value in got.getheaders()}
    connection.close()
    assert got.status == 200, body
    return body, headers


def test_a_bucket_that_is_away_is_explained_and_waited_for_without_attempts(
    shelf: Shelf, proxy: Faulty
):
    shelf.put("a.pdf", BOOK)
    job_id = shelf.submit()
    assert [ended.outcome for ended in shelf.step(1)] == ["settled"]
    proxy.methods, proxy.with_probe = ("GET", "HEAD", "PUT", "POST"), True
    proxy.always = servers.answer(503)
    for _ in range(5):
        assert {ended.outcome for ended in shelf.step(1)} == {"outage"}
        shelf.clock.advance(60)
    why = explain_document(shelf.app.caller, document_of(shelf).id)
    assert "s3://" in why["text"]
    assert "the store does not respond" in why["text"]
    assert "does not count as an attempt" in why["text"]
    assert len(told(shelf)) == 1
    assert "the store does not respond" in told(shelf)[0]
    proxy.always = None
    shelf.drain()
    assert shelf.job(job_id).state == "completed"
    assert document_of(shelf).state == "success"
    assert shelf.is_found("harbour")
    assert told(shelf) == []
    shelf.assert_healthy()


def told(shelf: Shelf) -> list[str]:
    """What the dashboard says of what keeps work from going on."""
    with shelf.db.read() as conn:
        return outages.listed(conn, "default", now=shelf.db.now(conn), max_silence=60.0)


def test_wrong_bytes_fail_the_document_and_never_reach_the_index(
    tmp_path: Path, shelf: Shelf, chosen: dict[str, Any], proxy: Faulty
):
    shelf.put("a.pdf", BOOK)
    shelf.ingest()
    [before] = shelf.index().values()
    digest = hashlib.sha256(BOOK).hexdigest()
    blobs = blobs_of(shelf)
    buckets.spoil(blobs, digest, BOOK.replace(b"harbour", b"library"))
    job_id = verbs.reindex(shelf.app.caller, document_of(shelf).id, {}, force=True)
    shelf.drain()
    assert shelf.job(job_id).state == "failed"
    assert "other bytes than were stored (expected sha256" in document_of(shelf).error
    [after] = shelf.index().values()
    assert after["pages"] == before["pages"]  # the old one stays searchable
    assert not shelf.is_found("library")
    buckets.spoil(blobs, digest, BOOK)
    shelf.retry(job_id)
    shelf.drain()
    assert document_of(shelf).state == "success"
    shelf.assert_healthy()


def test_what_a_killed_run_left_in_the_bucket_is_collected(shelf: Shelf, proxy: Faulty):
    blobs, content = blobs_of(shelf), b"a picture that no document came to use"
    digest = hashlib.sha256(content).hexdigest()

    def put() -> None:
        shelf.db.write(
            lambda conn, now: pages.put_content(conn, "default", digest, len(content), now.wall)
        )
        part = blobs.part_path("killed")
        part.write_bytes(content)
        blobs.put(part, digest)

    put()
    collector = Collector(shelf.db, blobs.delete, grace=100.0)
    assert collector.round(keep_seconds=0.0) == {"contents_marked": 1}
    put()  # begins to use it: it is unmarked
    shelf.clock.advance(101)
    assert "contents" not in collector.round(keep_seconds=0.0)
    assert blobs.verify(digest)
    shelf.clock.advance(101)
    proxy.methods, proxy.always = ("POST",), servers.answer(503)  # S3 deletes by POST
    tick = scheduler.tick(shelf.db, shelf.app.settings, collector=collector)
    assert "collected_contents" not in tick
    assert len(shelf.rows("contents")) == 1
    proxy.always = None
    assert collector.round(keep_seconds=0.0) == {"contents": 1}
    assert buckets.keys(blobs) == []
    assert not blobs.path(digest).exists()


def test_a_document_is_read_on_a_machine_whose_folder_was_lost(shelf: Shelf, tmp_path: Path):
    shelf.put("a.pdf", BOOK)
    shelf.ingest(settings=PLAIN)
    blobs = blobs_of(shelf)
    for path in sorted(blobs.cache.root.glob("??/*")):
        path.unlink()
    saved = verbs.save(shelf.app.caller, blobs, document_of(shelf).id, tmp_path / "saved.pdf")
    assert saved.read_bytes() == BOOK
