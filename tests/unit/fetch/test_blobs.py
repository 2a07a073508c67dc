"""Blobs, in a folder and in a bucket: whole or absent, verified when read, given back by name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.errors import BadInput, Conflict, Damaged, FetchFailed, Gone, Refused
from quire.fetch.blobs.bucket import BlobBucket
from quire.fetch.blobs.folder import BlobFolder
from tests import buckets, clouds

CONTENT = b"some bytes of a document"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


Blobs = BlobFolder | BlobBucket


@pytest.fixture(params=["folder", "s3", "gs", "az"])
def blobs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Blobs]:
    """Each kind of place in turn."""
    if request.param == "folder":
        yield BlobFolder(tmp_path / "blobs")
    elif request.param == "s3":
        url, endpoint = (request.getfixturevalue(name) for name in ("bucket_url", "moto_url"))
        yield buckets.blobs(url, endpoint, tmp_path / "blobs")
    else:
        kind = clouds.GoogleServer if request.param == "gs" else clouds.AzureServer
        with kind() as server:
            yield buckets.at_cloud(request.param, tmp_path, monkeypatch, server)


def root(blobs: Blobs) -> Path:
    return blobs.root if isinstance(blobs, BlobFolder) else blobs.cache.root


def spoil(blobs: Blobs, content: bytes) -> None:
    """Change the bytes where they are kept."""
    if isinstance(blobs, BlobBucket):
        buckets.spoil(blobs, DIGEST, content)
        return
    place = blobs.path(DIGEST)
    place.unlink()
    place.write_bytes(content)


def put(blobs: Blobs, content: bytes = CONTENT) -> str:
    part = blobs.part_path("a task")
    part.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    blobs.put(part, digest)
    return digest


def test_what_was_put_is_found_under_its_digest(blobs: Blobs):
    put(blobs)
    place = blobs.checked_path(DIGEST, len(CONTENT))
    assert place == root(blobs) / DIGEST[:2] / DIGEST[2:]
    assert place.read_bytes() == CONTENT
    assert place.stat().st_mode & 0o222 == 0
    assert list((root(blobs) / "parts").iterdir()) == []
    assert blobs.verify(DIGEST)


def test_the_same_name_gives_the_same_part_and_no_name_leaves_the_folder(blobs: Blobs):
    assert blobs.part_path("../../x") == blobs.part_path("../../x")
    for name in ("../../x", "task-7", "\udcff", "n" * 300):
        assert blobs.part_path(name).parent == root(blobs) / "parts"
    assert blobs.part_path("task-7").name == "task-7.part"


def test_the_same_bytes_are_kept_once(blobs: Blobs):
    put(blobs)
    before = blobs.path(DIGEST).stat().st_ino
    put(blobs)
    assert blobs.path(DIGEST).stat().st_ino == before
    assert blobs.sizes([DIGEST]) == {DIGEST: len(CONTENT)}
    assert list((root(blobs) / "parts").iterdir()) == []


@pytest.mark.parametrize("wrong", [b"short", CONTENT[:-1] + b"!"])
def test_damage_is_found_when_the_bytes_are_read(blobs: Blobs, wrong: bytes):
    put(blobs)
    blobs.checked_path(DIGEST, len(CONTENT))
    spoil(blobs, wrong)
    with pytest.raises(Damaged, match=r"(have changed|other bytes.*) \(expected .*, got "):
        blobs.checked_path(DIGEST, len(CONTENT))
    assert not blobs.verify(DIGEST)


def test_good_bytes_take_the_place_of_damaged_ones(blobs: Blobs):
    put(blobs)
    spoil(blobs, CONTENT[:-1] + b"!")
    put(blobs)
    assert blobs.verify(DIGEST)
    assert blobs.checked_path(DIGEST, len(CONTENT)).read_bytes() == CONTENT


def test_a_file_is_hashed_once_in_its_life(blobs: Blobs, monkeypatch: pytest.MonkeyPatch):
    put(blobs)

    def never(*_: object) -> None:
        raise AssertionError("hashed again")

    monkeypatch.setattr(hashlib, "file_digest", never)
    blobs.checked_path(DIGEST, len(CONTENT))


def test_a_blob_that_is_gone_is_said_to_be(blobs: Blobs):
    put(blobs)
    blobs.delete(DIGEST)
    blobs.delete(DIGEST)
    with pytest.raises(Gone, match="missing"):
        blobs.checked_path(DIGEST, len(CONTENT))


def test_the_original_comes_back_under_its_name(blobs: Blobs, tmp_path: Path):
    put(blobs)
    saved = blobs.save_as(DIGEST, "../Bericht\n2026.pdf", tmp_path)
    assert saved == tmp_path / ".._Bericht\ufffd2026.pdf"
    assert saved.read_bytes() == CONTENT
    with pytest.raises(Conflict, match="already exists"):
        blobs.save_as(DIGEST, "../Bericht\n2026.pdf", tmp_path)
    blobs.save_as(DIGEST, "../Bericht\n2026.pdf", tmp_path, replace=True)
    elsewhere = blobs.save_as(DIGEST, "ignored.pdf", tmp_path / "mine.pdf")
    assert elsewhere.read_bytes() == CONTENT
    long = blobs.save_as(DIGEST, "ü" * 400 + ".pdf", tmp_path)
    assert long.read_bytes() == CONTENT


def test_what_cannot_be_saved_says_why_and_promises_nothing(blobs: Blobs, tmp_path: Path):
    put(blobs)
    with pytest.raises(BadInput, match=r"no such folder\. Nothing was saved") as missing:
        blobs.save_as(DIGEST, "a.pdf", tmp_path / "nodir" / "x.pdf")
    with pytest.raises(
        Refused, match=r"cannot be written to .*too long.*Nothing was saved"
    ) as long:
        blobs.save_as(DIGEST, "a.pdf", tmp_path / ("x" * 300))
    for error in (missing, long):
        assert "tried again" not in str(error.value)
        assert error.value.exit_code == 2


def test_a_digest_that_is_none_reaches_no_file(blobs: Blobs):
    with pytest.raises(ValueError, match="not a SHA-256"):
        blobs.path("../../etc/passwd")


def test_abandoned_parts_are_found_by_age(blobs: Blobs):
    old, young = blobs.part_path("old"), blobs.part_path("young")
    old.touch()
    young.touch()
    os.utime(old, (100, 100))
    assert blobs.abandoned_parts(before=1_000) == [old]


def test_a_folder_that_cannot_be_written_is_said_in_words(tmp_path: Path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    with pytest.raises(FetchFailed, match="cannot be written to"):
        BlobFolder(in_the_way).part_path("x")


def test_bytes_that_are_not_of_the_digest_are_not_kept(blobs: Blobs):
    part = blobs.part_path("a task")
    part.write_bytes(b"what another process wrote in the meantime")
    with pytest.raises(FetchFailed, match="changed after it was verified"):
        blobs.put(part, DIGEST)
    assert not blobs.path(DIGEST).exists()
    assert blobs.sizes([DIGEST]) == {}
    assert list((root(blobs) / "parts").iterdir()) == []
