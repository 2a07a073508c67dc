"""Buckets as a source have credentials of their own, and never silently those of stored files."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from quire.errors import SourceRefused
from quire.fetch import source_credentials
from quire.fetch.source_credentials import access_of
from tests import buckets
from tests.clouds import ACCOUNT, BUCKET, KEY, AzureServer
from tests.integration.fetch.fetch_places import put_object
from tests.servers import Asked, Proxy
from tests.shelf import Shelf

OWN = "AWS_ACCESS_KEY_ID=AKIASOURCES AWS_SECRET_ACCESS_KEY=sources-only AWS_REGION=us-east-1"


def signer(asked: Asked) -> str:
    """The key that a request was signed with."""
    told = asked.headers.get("authorization", "") or asked.query.get("X-Amz-Credential", "")
    return unquote(told).partition("Credential=")[2].partition("/")[0] or told.partition("/")[0]


def proxy(moto_url: str) -> Proxy:
    parts = urlsplit(moto_url)
    return Proxy(parts.hostname or "", parts.port or 0)


def test_sources_and_stored_files_are_read_with_different_keys(
    moto_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    buckets.allow(monkeypatch)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-blobs")
    blobs, [name] = buckets.make(moto_url), [buckets.make(moto_url).split("/")[2]]
    put_object(moto_url, name, "in/memo.txt", b"The tide turns at noon.", "text/plain")
    with proxy(moto_url) as ours, proxy(moto_url) as theirs:
        shelf = Shelf(
            tmp_path / "home", tmp_path / "in", fetch_allow_private_addresses=True, blobs=blobs,
            bucket_endpoint=ours.url, source_endpoint=theirs.url, source_credentials=OWN,
        )  # fmt: skip
        try:
            shelf.ingest(f"s3://{name}/in/")
            assert shelf.is_found("tide turns")
        finally:
            shelf.close()
        assert {signer(each) for each in theirs.asked} == {"AKIASOURCES"}
        assert {signer(each) for each in ours.asked} == {"testing"}
        assert "token-of-blobs" not in str(theirs.asked)
        assert "token-of-blobs" in str(ours.asked)


def test_without_a_choice_the_credentials_of_stored_files_open_no_source(
    moto_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    buckets.allow(monkeypatch)
    blobs, name = buckets.make(moto_url), buckets.make(moto_url).split("/")[2]
    put_object(moto_url, name, "in/memo.txt", b"The tide turns at noon.", "text/plain")
    where: dict[str, Any] = {
        "blobs": blobs,
        "bucket_endpoint": moto_url,
        "fetch_allow_private_addresses": True,
    }
    shelf = Shelf(tmp_path / "home", tmp_path / "in", **where)
    refused = shelf.ingest(f"s3://{name}/in/")
    assert "QUIRE_SOURCE_CREDENTIALS" in shelf.job(refused).error
    assert shelf.rows("documents") == []
    shelf.close()
    shelf = Shelf(tmp_path / "home2", tmp_path / "in", **where, source_credentials="shared")
    shelf.ingest(f"s3://{name}/in/")
    assert shelf.is_found("tide turns")
    shelf.close()


def test_own_credentials_of_azure_sign_the_download_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "blobs")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "Ym9ndXM=")
    own = f"AZURE_STORAGE_ACCOUNT_NAME={ACCOUNT} AZURE_STORAGE_ACCOUNT_KEY={KEY}"
    with AzureServer(5) as server:
        server.put("docs/a memo.txt", b"The tide turns at noon.")
        shelf = Shelf(
            tmp_path / "home", tmp_path / "in", fetch_allow_private_addresses=True,
            source_endpoint=server.endpoint, source_credentials=own,
        )  # fmt: skip
        try:
            job_id = shelf.ingest(f"az://{BUCKET}/docs/")
            assert shelf.is_found("tide turns"), shelf.job(job_id).error
        finally:
            shelf.close()


@pytest.mark.parametrize(
    ("settings", "scheme", "chosen"),
    [
        ({}, "s3", None),
        ({"blobs": "gs://b/q"}, "s3", None),
        ({"blobs": "s3://b/q", "source_credentials": "shared"}, "s3", None),
        ({"blobs": "s3://b/q", "source_credentials": OWN}, "s3", "AKIASOURCES"),
        ({"source_credentials": OWN}, "s3", "AKIASOURCES"),
    ],
)
def test_the_settings_decide_which_credentials_open_a_source(
    settings: dict[str, str], scheme: str, chosen: str | None
):
    found = access_of(scheme, {**settings, "bucket_endpoint": "http://ours"})
    assert (found.credentials or {}).get("AWS_ACCESS_KEY_ID") == chosen
    assert found.endpoint == ("" if chosen else "http://ours")


@pytest.mark.parametrize(
    ("settings", "scheme", "why"),
    [
        ({"blobs": "S3://b/q"}, "s3", "open no source"),
        ({"source_credentials": "AWS_ACCESS_KEY_ID=a"}, "s3", "lacks AWS_SECRET_ACCESS_KEY"),
        ({"source_credentials": OWN}, "az", "lacks AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_a_source_without_credentials_of_its_own_is_refused(
    settings: dict[str, str], scheme: str, why: str
):
    with pytest.raises(SourceRefused, match=why) as refused:
        access_of(scheme, settings)
    assert "sources-only" not in str(refused.value)


def test_doctor_says_which_credentials_sources_have():
    described = source_credentials.described
    assert described({}) is None
    assert described({"blobs": "s3://b"}) and "none at s3://" in str(described({"blobs": "s3://b"}))
    assert "own credentials for s3" in str(described({"source_credentials": OWN}))
    assert "shared" in str(described({"source_credentials": "shared"}))
