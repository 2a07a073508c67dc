"""Buckets of Google and Azure through the real client: listing by tokens, cursors, odd keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from quire.errors import Gone, SourceRefused
from quire.fetch.items import Item, Limits, SourceOptions
from quire.fetch.sources.registry import open_source
from tests import servers
from tests.clouds import (
    ACCOUNT,
    BUCKET,
    KEY,
    AzureServer,
    CloudServer,
    GoogleServer,
    service_account,
)
from tests.integration.fetch.fetch_places import LOOPBACK
from tests.shelf import Shelf

PAGE = 7  # of the server's listing; the client asks for as many as there are


@pytest.fixture(params=["gs", "az"])
def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CloudServer]:
    """The server of each cloud in turn, with credentials in the usual variables."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(service_account(tmp_path)))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    with (GoogleServer if request.param == "gs" else AzureServer)(PAGE) as made:
        yield made


@pytest.fixture
def chosen(server: CloudServer) -> SourceOptions:
    limits = Limits(delays=())
    return SourceOptions(endpoint=server.endpoint, allow_networks=LOOPBACK, limits=limits)


def url(server: CloudServer, key: str = "", bucket: str = BUCKET) -> str:
    return f"{'az' if isinstance(server, AzureServer) else 'gs'}://{bucket}/{key}"


def listed(place: str, chosen: SourceOptions, after: str | None = None) -> list[Item]:
    return [item for page in open_source(place, chosen).pages(after) for item in page.items]


def test_a_prefix_is_listed_over_the_pages_of_the_server(
    server: CloudServer, chosen: SourceOptions
):
    names = [f"{number:03}.txt" for number in range(3 * PAGE + 2)]
    for name in [*names, "ü & <y>.txt"]:
        server.put(f"docs/sub/{name}", name.encode())
    server.put("docsother/c.txt", b"c")
    found = listed(url(server, "docs/"), chosen)
    assert [each.name for each in found] == [*names, "ü & <y>.txt"]
    assert {each.folder for each in found} == {"sub"}
    assert found[0].uri == url(server, "docs/sub/000.txt")
    assert found[0].size == len("000.txt")
    assert found[0].mtime == 1767323045.0
    assert len([each for each in server.asked if each.path.endswith(BUCKET)]) == 4
    assert len(listed(url(server), chosen)) == len(names) + 2


def test_a_listing_goes_on_behind_its_cursor(
    server: CloudServer, chosen: SourceOptions, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("quire.fetch.sources.bucket.PAGE_ITEMS", 10)
    names = [f"{number:03}.txt" for number in range(25)]
    for name in names:
        server.put(name, b"x")
    pages = list(open_source(url(server), chosen).pages(None))
    assert [len(page.items) for page in pages] == [10, 10, 5]
    assert pages[0].cursor == names[9]
    rest = listed(url(server), chosen, after=pages[0].cursor)
    assert [each.name for each in rest] == names[10:]


def test_objects_with_odd_keys_are_read(server: CloudServer, chosen: SourceOptions, tmp_path: Path):
    keys = ["a b.txt", "ü+%20.txt", "q?x=1&y#z.txt", "a=b;c,d.txt", "sub/(1)'~!$*@[2].txt"]
    for key in keys:
        server.put(key, key.encode())
    source = open_source(url(server), chosen)
    read = []
    for number, item in enumerate(listed(url(server), chosen)):
        part = tmp_path / str(number)
        fetched = source.fetch(item, part, lambda got, total: None, lambda: None)
        assert fetched.checked == "size, md5"
        read.append(part.read_bytes().decode())
    assert sorted(read) == sorted(keys)


def test_one_object_is_told_of_alike_alone_and_in_a_listing(
    server: CloudServer, chosen: SourceOptions
):
    server.put("docs/a.txt", b"x")
    [alone] = listed(url(server, "docs/a.txt"), chosen)
    [within] = listed(url(server, "docs/"), chosen)
    assert (alone.uri, alone.size, alone.mtime) == (within.uri, within.size, within.mtime)
    assert alone.etag == within.etag is not None


def test_what_is_wrong_is_said(
    server: CloudServer, chosen: SourceOptions, monkeypatch: pytest.MonkeyPatch
):
    server.put("a.txt", b"x")
    said = open_source(url(server), chosen).doctor()
    assert said == [f"{url(server)}: can be listed; objects found: 1."]
    with pytest.raises(Gone, match="the bucket does not exist"):
        listed(url(server, bucket="not-there"), chosen)
    [refused] = open_source(url(server), replace(chosen, allow_networks=())).doctor()
    assert "private address" in refused
    monkeypatch.setattr(server, "is_signed", lambda asked: False)
    with pytest.raises(SourceRefused, match="access denied"):
        listed(url(server), chosen)


def test_a_bucket_is_taken_in_by_the_setting_of_its_endpoint(server: CloudServer, tmp_path: Path):
    for number in range(PAGE + 2):
        server.put(f"docs/{number}.txt", f"words of object {number}".encode())
    server.faults = [servers.cut(3)]
    shelf = Shelf(
        tmp_path / "home",
        tmp_path / "in",
        bucket_endpoint=server.endpoint,
        fetch_allow_private_addresses=True,
    )
    try:
        job_id = shelf.ingest(url(server, "docs/"))
        assert shelf.listed(job_id) == {"new": PAGE + 2}
        assert shelf.is_found(f"words of object {PAGE}")
        asked = len(server.bytes_asked())
        assert asked == PAGE + 3
        assert shelf.listed(shelf.ingest(url(server, "docs/"))) == {"unchanged": PAGE + 2}
        assert len(server.bytes_asked()) == asked
    finally:
        shelf.close()
