"""One file in five kinds of place, each with the same faults: the web, Drive, S3, GCS, Azure."""

from __future__ import annotations

import http.client
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from quire.fetch.items import Fetched, Item, Limits, Source, SourceOptions
from quire.fetch.sources.registry import open_source
from tests.clouds import BUCKET, CloudServer
from tests.servers import DriveFile, DriveServer, FaultyServer, FileServer, Proxy

CHUNK = 64 << 10
LIMITS = Limits(chunk_bytes=CHUNK)
PDF = "application/pdf"
SIGNED = (
    "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)
LOOPBACK = ("127.0.0.1/32",)


class FakeTime:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.waited = 0.0

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waited += seconds


def options(time: FakeTime | None = None, **changes: Any) -> SourceOptions:
    """Options that reach loopback and do not wait."""
    plain = SourceOptions(allow_networks=LOOPBACK, limits=LIMITS)
    if time:
        plain = replace(plain, clock=time.clock, wait=time.wait)
    else:
        plain = replace(plain, wait=lambda seconds: None)
    return replace(plain, **changes)


def pdf(size: int, letter: str = "a") -> bytes:
    """Bytes that begin as a PDF does and differ from place to place."""
    body = b"".join(f"{letter}{number:011d}\n".encode() for number in range(size // 13 + 1))
    return (b"%PDF-1.7\n" + body)[:size]


class Place:
    """Where one file lies."""

    server: FaultyServer

    def put(self, content: bytes) -> None:
        raise NotImplementedError

    def source(self, chosen: SourceOptions) -> Source:
        raise NotImplementedError

    def item(self, chosen: SourceOptions) -> Item:
        """List the place and return its one file."""
        [page] = self.source(chosen).pages(None)
        [item] = page.items
        return item

    def fetch(self, part: Path, chosen: SourceOptions, item: Item | None = None) -> Fetched:
        """List, then bring the file."""
        item = item or self.item(chosen)
        return self.source(chosen).fetch(item, part, lambda got, total: None, lambda: None)


class WebPlace(Place):
    def __init__(self, server: FileServer) -> None:
        self.server: FileServer = server

    def put(self, content: bytes) -> None:
        self.server.put("/files/report.pdf", content, content_type=PDF)

    def source(self, chosen: SourceOptions) -> Source:
        return open_source(self.server.url + "/files/report.pdf", chosen)


class DrivePlace(Place):
    def __init__(self, server: DriveServer, folder: Path) -> None:
        self.server: DriveServer = server
        self.credentials = authorized_user(server, folder)

    def put(self, content: bytes) -> None:
        self.server.put(DriveFile("report-id-0001", "report.pdf", PDF, "root", content))

    def source(self, chosen: SourceOptions) -> Source:
        ours = replace(chosen, endpoint=self.server.url, credentials=self.credentials)
        return open_source("gdrive:report-id-0001", ours)


class BucketPlace(Place):
    def __init__(self, server: Proxy, moto_url: str, bucket: str) -> None:
        self.server: Proxy = server
        self.moto_url = moto_url
        self.bucket = bucket

    def put(self, content: bytes) -> None:
        put_object(self.moto_url, self.bucket, "reports/report.pdf", content, PDF)

    def source(self, chosen: SourceOptions) -> Source:
        ours = replace(chosen, endpoint=self.server.url)
        return open_source(f"s3://{self.bucket}/reports/report.pdf", ours)


class CloudPlace(Place):
    """A bucket of Google or Azure, listed by its prefix."""

    def __init__(self, server: CloudServer, scheme: str, credentials: Path | None = None) -> None:
        self.server: CloudServer = server
        self.scheme = scheme
        self.credentials = credentials

    def put(self, content: bytes) -> None:
        self.server.put("reports/report.pdf", content, PDF)

    def source(self, chosen: SourceOptions) -> Source:
        account = {"GOOGLE_APPLICATION_CREDENTIALS": str(self.credentials)}
        own = account if self.credentials else None
        ours = replace(chosen, endpoint=self.server.endpoint, bucket_credentials=own)
        return open_source(f"{self.scheme}://{BUCKET}/reports/", ours)


def authorized_user(server: DriveServer, folder: Path) -> Path:
    """Write the credentials file of a person whose tokens the double gives."""
    path = folder / "user.json"
    known = {"type": "authorized_user", "client_id": "c", "client_secret": "s"}
    known |= {"refresh_token": "r", "token_uri": server.url + "/token"}
    path.write_text(json.dumps(known))
    return path


def put_object(url: str, bucket: str, key: str, content: bytes, kind: str = PDF) -> None:
    """Put an object, or make a bucket with an empty key, on the S3 server."""
    host = urlsplit(url)
    connection = http.client.HTTPConnection(host.hostname or "", host.port, timeout=20)
    connection.request(
        "PUT",
        f"/{bucket}/{quote(key)}" if key else f"/{bucket}",
        content,
        {"content-type": kind, "authorization": SIGNED},
    )
    got = connection.getresponse()
    got.read()
    connection.close()
    assert got.status == 200, got.status


class Gate:
    """A check that raises from some call on, as a stop does."""

    def __init__(self, error: Exception, when: threading.Event) -> None:
        self.error, self.when = error, when

    def __call__(self) -> None:
        if self.when.is_set():
            raise self.error
