"""`quire transfer --blobs`: the files of an installation are copied, and nothing is switched."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import buckets
from tests.shelf import Shelf

if TYPE_CHECKING:
    from tests.integration.cli.cli_command import Run

pytest_plugins = ["tests.integration.cli.cli_command"]


@pytest.fixture
def taken_in(home: Path, tmp_path: Path) -> int:
    """A home with some documents; returns how many."""
    shelf = Shelf(home, tmp_path / "in")
    for number in range(3):
        shelf.put(f"{number}.txt", f"words of file {number}")
    shelf.ingest()
    shelf.close()
    return 3


def test_files_are_copied_proved_and_used_from_there(
    quire: Run, home: Path, taken_in: int, bucket_url: str, moto_url: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.setenv("QUIRE_BUCKET_ENDPOINT", moto_url)
    made = quire("transfer", "--blobs", bucket_url)
    assert made.code == 0, made.err
    assert f"Copied to {bucket_url}: {taken_in} files, " in made.out
    assert f"Nothing was switched: {home / 'blobs'} is still in use." in made.out
    assert len(buckets.keys_at(bucket_url, moto_url)) == taken_in
    again = quire("transfer", "--blobs", bucket_url, "--json").json
    assert (again["copied"], again["present"], again["not_copied"]) == (0, taken_in, {})
    shutil.rmtree(home / "blobs")
    assert "blobs.files: violated in 3 places" in quire("doctor").out
    monkeypatch.setenv("QUIRE_BLOBS", bucket_url)
    assert quire("doctor", "--deep").code == 0
    saved = quire("document", "save", 1, tmp_path / "saved.txt")
    assert saved.code == 0, saved.err
    assert (tmp_path / "saved.txt").read_text() == "words of file 0"
    same = quire("transfer", "--blobs", bucket_url)
    assert same.code == 2
    assert "the files are already in" in same.err


def test_a_file_that_is_lost_is_named_and_the_rest_is_copied(
    quire: Run, home: Path, taken_in: int, bucket_url: str, moto_url: str,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.setenv("QUIRE_BUCKET_ENDPOINT", moto_url)
    first = min((home / "blobs").glob("??/*"))
    first.unlink()
    made = quire("transfer", "--blobs", bucket_url)
    assert made.code == 1
    assert (
        f"not copied: blob {first.parent.name}{first.name}: missing from {home / 'blobs'}"
        in made.out
    )
    assert "1 file could not be copied" in made.out
    assert len(buckets.keys_at(bucket_url, moto_url)) == taken_in - 1


def test_a_bucket_that_cannot_be_used_is_refused_before_anything_is_sent(
    quire: Run, taken_in: int, bucket_url: str, moto_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("QUIRE_BUCKET_ENDPOINT", moto_url)
    wrong = quire("transfer", "--blobs", "s3://not-there-at-all/quire")
    assert wrong.code == 2
    assert "the bucket 'not-there-at-all' does not exist" in wrong.err
    assert "Nothing was copied." in wrong.err
    assert quire("transfer", "--blobs", "somewhere").code == 2
