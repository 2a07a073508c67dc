"""Buckets: listing in the order of keys, cursors, what can be said when they cannot be read."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from obstore import exceptions

from quire.errors import BadInput, FetchFailed, Gone, SourceRefused
from quire.fetch.items import Item, Limits, SourceOptions
from quire.fetch.sources.bucket import BucketSource
from quire.fetch.sources.registry import open_source
from tests.integration.fetch.fetch_places import LOOPBACK, put_object

PAGE = 20  # of a listing in these tests


@pytest.fixture
def chosen(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> SourceOptions:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return SourceOptions(endpoint=moto_url, allow_networks=LOOPBACK, limits=Limits(delays=()))


@pytest.fixture
def bucket(moto_url: str) -> str:
    name = f"b-{uuid.uuid4().hex[:12]}"
    put_object(moto_url, name, "", b"")
    return name


def listed(url: str, chosen: SourceOptions, after: str | None = None) -> list[Item]:
    return [item for page in open_source(url, chosen).pages(after) for item in page.items]


def test_a_prefix_is_listed_in_the_order_of_keys(moto_url: str, bucket: str, chosen: SourceOptions):
    for key in ("docs/b.txt", "docs/a/x.txt", "docs/ü y.txt", "docsother/c.txt", "top.txt"):
        put_object(moto_url, bucket, key, key.encode(), "text/plain")
    found = listed(f"s3://{bucket}/docs/", chosen)
    assert [(each.folder, each.name) for each in found] == [
        ("a", "x.txt"),
        ("", "b.txt"),
        ("", "ü y.txt"),
    ]
    assert found[1].uri == f"s3://{bucket}/docs/b.txt"
    assert found[1].size == len("docs/b.txt")
    assert found[1].etag
    assert found[1].mtime
    assert len(listed(f"s3://{bucket}", chosen)) == 5
    only = replace(chosen, include=("*.txt",), exclude=("docs/**",))
    assert [each.name for each in listed(f"s3://{bucket}/", only)] == ["c.txt", "top.txt"]


def test_objects_with_odd_keys_are_read(
    moto_url: str, bucket: str, chosen: SourceOptions, tmp_path: Path
):
    keys = ["a b.txt", "ü+%20.txt", "q?x=1&y#z.txt", "a=b;c,d.txt"]
    for key in keys:
        put_object(moto_url, bucket, key, key.encode(), "text/plain")
    source = open_source(f"s3://{bucket}/", chosen)
    read = []
    for number, item in enumerate(listed(f"s3://{bucket}/", chosen)):
        part = tmp_path / str(number)
        source.fetch(item, part, lambda got, total: None, lambda: None)
        read.append(part.read_bytes().decode())
    assert sorted(read) == sorted(keys)


def test_the_mark_of_a_folder_is_no_file(moto_url: str, bucket: str, chosen: SourceOptions):
    for key in ("docs/", "docs/a.txt", "docs/empty.txt", "docs/sub/"):
        put_object(moto_url, bucket, key, b"x" if key == "docs/a.txt" else b"", "text/plain")
    [page] = open_source(f"s3://{bucket}/", chosen).pages(None)
    assert [each.name for each in page.items] == ["a.txt", "empty.txt"]
    assert [each.uri for each in page.skipped] == [f"s3://{bucket}/docs", f"s3://{bucket}/docs/sub"]


def test_one_object_is_a_source(moto_url: str, bucket: str, chosen: SourceOptions):
    put_object(moto_url, bucket, "docs/a.txt", b"x", "text/plain")
    source = open_source(f"s3://{bucket}/docs/a.txt", chosen)
    [page] = source.pages(None)
    assert [each.name for each in page.items] == ["a.txt"]
    assert list(source.pages(page.cursor)) == []


def test_an_empty_object_is_a_file(
    moto_url: str, bucket: str, chosen: SourceOptions, tmp_path: Path
):
    put_object(moto_url, bucket, "empty.txt", b"", "text/plain")
    source = open_source(f"s3://{bucket}/empty.txt", chosen)
    [page] = source.pages(None)
    fetched = source.fetch(page.items[0], tmp_path / "p", lambda got, total: None, lambda: None)
    assert fetched.size == 0


def test_a_long_listing_is_paged_and_goes_on(
    moto_url: str, bucket: str, chosen: SourceOptions, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("quire.fetch.sources.bucket.PAGE_ITEMS", PAGE)
    names = [f"{number:05d}.txt" for number in range(PAGE + 5)]
    for name in names:
        put_object(moto_url, bucket, name, b"x", "text/plain")
    pages = list(open_source(f"s3://{bucket}/", chosen).pages(None))
    assert [len(page.items) for page in pages] == [PAGE, 5]
    assert pages[0].cursor == names[PAGE - 1]
    rest = listed(f"s3://{bucket}/", chosen, after=pages[0].cursor)
    assert [each.name for each in rest] == names[PAGE:]


def test_the_doctor_says_what_is_wrong(bucket: str, moto_url: str, chosen: SourceOptions):
    put_object(moto_url, bucket, "a.txt", b"x", "text/plain")
    assert open_source(f"s3://{bucket}/", chosen).doctor() == [
        f"s3://{bucket}/: can be listed; objects found: 1."
    ]
    [said] = open_source("s3://not-there-at-all/", chosen).doctor()
    assert "the bucket does not exist" in said
    [said] = open_source(f"s3://{bucket}/", replace(chosen, allow_networks=())).doctor()
    assert "private address" in said
    with pytest.raises(Gone):
        listed("s3://not-there-at-all/", chosen)
    with pytest.raises(BadInput, match="no bucket given"):
        open_source("s3://", chosen)


def test_a_server_that_is_not_there_is_tried_again_later(bucket: str, chosen: SourceOptions):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(FetchFailed, match="cannot be reached"):
            listed(f"s3://{bucket}/", replace(chosen, endpoint=endpoint))


def test_an_object_that_goes_before_it_is_read_is_gone(
    moto_url: str, bucket: str, chosen: SourceOptions, tmp_path: Path
):
    put_object(moto_url, bucket, "a.txt", b"x", "text/plain")
    source = open_source(f"s3://{bucket}/", chosen)
    item = Item(f"s3://{bucket}/other.txt", "other.txt", 1)
    with pytest.raises(SourceRefused, match="not found"):
        source.fetch(item, tmp_path / "p", lambda got, total: None, lambda: None)


@pytest.mark.parametrize(
    ("url", "asked", "names"),
    [
        ("s3://b/x", "PUT http://169.254.169.254/latest/api/token", "AWS_ACCESS_KEY_ID"),
        ("gs://b/x", "GET http://metadata.google.internal/x", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://b/x", "GET http://169.254.169.254/metadata", "AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
@pytest.mark.parametrize("answer", ["error sending request", "status code: 403 Forbidden"])
def test_a_bucket_without_credentials_says_where_they_are_looked_for(
    url: str, asked: str, names: str, answer: str
):
    # What the library says on a machine that no cloud knows; to ask for real takes minutes.
    raw = f"Generic S3 error: Error performing {asked} in 10s, after 5 retries - {answer}"
    source = BucketSource(url, SourceOptions())
    with pytest.raises(FetchFailed) as refused, source._translate_errors():
        raise exceptions.GenericError(raw)
    assert str(refused.value).startswith(f"{url}: no credentials found. Set ")
    assert names in str(refused.value)
    assert "Generic" not in str(refused.value)
