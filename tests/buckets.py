"""Buckets of the S3 server of the tests: made, looked into and changed behind Quire's back."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from quire.fetch.blobs.bucket import BlobBucket, blob_key
from quire.fetch.blobs.cache import BlobCache
from quire.fetch.object_store import Bucket, Timeouts
from tests import clouds
from tests.integration.fetch.fetch_places import put_object

KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
}
#: Faults are seen at once, and not tried away.
SHORT = Timeouts(request_seconds=1.0, retries=0, retry_seconds=1.0, probe_seconds=1.0)
ROOM = 1 << 30


def allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set credentials, here and for the processes that are started from here."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def at_cloud(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: clouds.CloudServer
) -> BlobBucket:
    """Blobs in a bucket of a double of Google or Azure."""
    account = clouds.service_account(tmp_path)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(account))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", clouds.ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", clouds.KEY)
    return blobs(f"{scheme}://{clouds.BUCKET}/quire", server.endpoint, tmp_path / "blobs")


def make(moto_url: str) -> str:
    """Make a bucket; returns its URL with a prefix."""
    name = f"b-{uuid.uuid4().hex[:12]}"
    put_object(moto_url, name, "", b"")
    return f"s3://{name}/quire"


def blobs(
    url: str, endpoint: str, folder: Path, *, room: int = ROOM, timeouts: Timeouts = SHORT
) -> BlobBucket:
    """Blobs in a bucket, with a cache in a folder that no other has."""
    bucket = Bucket(url, endpoint=endpoint, timeouts=timeouts)
    return BlobBucket(bucket, BlobCache(folder, room))


def spoil(blobs: BlobBucket, digest: str, content: bytes) -> None:
    """Put other bytes in the place of a blob, and forget what this machine knows of it."""
    part = blobs.part_path("spoilt")
    part.write_bytes(content)
    blobs.bucket.put(blob_key(digest), part)
    part.unlink()
    blobs.cache.delete(digest)


def keys(blobs: BlobBucket) -> list[str]:
    """What is in the bucket."""
    return [each.key for each in blobs.bucket.list_objects()]


def keys_at(url: str, moto_url: str) -> list[str]:
    return [each.key for each in Bucket(url, endpoint=moto_url, timeouts=SHORT).list_objects()]
