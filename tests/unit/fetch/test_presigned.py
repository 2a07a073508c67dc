"""Links into a bucket: the store accepts them, and they say under which name to save."""

from __future__ import annotations

import http.client
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from quire.fetch.blobs import presigned
from quire.fetch.object_store import Bucket
from tests import buckets, clouds

NAME = "Gezeiten & Häfen (1).pdf"


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    buckets.allow(monkeypatch)
    return Bucket("s3://letters/a b/ü", endpoint="http://127.0.0.1:9")


def test_signing_again_without_a_change_gives_the_signature_of_the_library(amazon: Bucket):
    url = amazon.sign("ab/cd", 300)
    assert url
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presigned, "_response_parameters", lambda disposition, media_type: {})
        again = presigned.presigned_url(amazon, "ab/cd", NAME, "application/pdf", inline=False)
    assert again
    found, expected = (dict(parse_qsl(urlsplit(each).query)) for each in (again, url))
    if found["X-Amz-Date"] == expected["X-Amz-Date"]:  # else a second passed between the two
        assert found == expected
    assert urlsplit(again).path == urlsplit(url).path


def test_a_link_names_the_file_and_its_type(amazon: Bucket):
    url = presigned.presigned_url(amazon, "ab/cd", NAME, "application/pdf", inline=False)
    told = dict(parse_qsl(urlsplit(str(url)).query))
    assert told["response-content-type"] == "application/pdf"
    assert told["response-content-disposition"] == (
        "attachment; filename*=utf-8''Gezeiten%20%26%20H%C3%A4fen%20%281%29.pdf"
    )
    assert told["X-Amz-Expires"] == "300"
    shown = presigned.presigned_url(amazon, "ab/cd", "a.pdf", "application/pdf", inline=True)
    told = dict(parse_qsl(urlsplit(str(shown)).query))
    assert told["response-content-disposition"] == 'inline; filename="a.pdf"'


def test_without_a_secret_there_is_no_link(amazon: Bucket, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert presigned.presigned_url(amazon, "ab/cd", NAME, "application/pdf", inline=False) is None


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_the_other_clouds_accept_what_was_signed_again(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with (clouds.GoogleServer if scheme == "gs" else clouds.AzureServer)() as server:
        blobs = buckets.at_cloud(scheme, tmp_path, monkeypatch, server)
        server.put(blobs.bucket.key("ab/cd"), b"words")
        url = presigned.presigned_url(blobs.bucket, "ab/cd", NAME, "text/plain", inline=False)
        assert url
        parts = urlsplit(url)
        for query, status in ((parts.query, 200), (parts.query.replace("Gezeiten", "Ebbe"), 403)):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            connection.request("GET", f"{parts.path}?{query}")
            got = connection.getresponse()
            got.read()
            connection.close()
            assert got.status == status
