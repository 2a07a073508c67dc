"""Uploads that are stored for longer than the grace of the garbage collector."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quire.control import uploads
from quire.errors import Gone
from quire.fetch.blobs.folder import BlobFolder
from quire.store.documents.gc import Collector
from tests.shelf import Shelf, open_shelf
from tests.waiting import until


@pytest.fixture(params=["sqlite", "postgres"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    yield from open_shelf(request, tmp_path)


class SlowBlobs(BlobFolder):
    """Takes hours to store a file, in which garbage is collected."""

    def __init__(self, root: Path, meanwhile: Callable[[], None]) -> None:
        super().__init__(root)
        self.meanwhile = meanwhile

    def put(self, part: Path, digest: str, *, is_own: bool = False) -> None:
        super().put(part, digest, is_own=is_own)
        self.meanwhile()


def upload(shelf: Shelf, meanwhile: Callable[[], object]) -> int:
    """Upload two files; during each the scheduler collects, and two hours pass."""
    root = Path(shelf.app.settings.home) / "blobs"
    collector = Collector(shelf.db, BlobFolder(root).delete)

    def hours_pass() -> None:
        for _ in range(4):
            collector.round(keep_seconds=0.0)
            meanwhile()
            shelf.clock.advance(1801)

    blobs = SlowBlobs(root, hours_pass)
    received = []
    for content in (b"first words", b"second words"):
        digest = hashlib.sha256(content).hexdigest()
        part = blobs.part_path(f"upload {digest[:8]}")
        part.write_bytes(content)
        received.append(uploads.UploadedFile(f"{digest[:4]}.txt", digest, len(content), part))
    made = uploads.upload(shelf.app.caller, blobs, received, settings={"embedder": "none"})
    return int(made["id"])


def test_an_upload_that_lasts_longer_than_the_grace_is_kept(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(uploads, "HOLD_SECONDS", 0.005)

    def is_held() -> bool:
        return all(row.condemned_at is None for row in shelf.rows("contents"))

    job = upload(shelf, lambda: until(is_held, within=10))
    shelf.drain()
    assert [row.state for row in shelf.rows("documents")] == ["success", "success"]
    assert shelf.job(job).state == "completed"


def test_no_job_is_confirmed_for_a_file_that_was_collected(shelf: Shelf):
    with pytest.raises(Gone, match="upload them again"):
        upload(shelf, lambda: None)
    assert (shelf.rows("jobs"), shelf.rows("documents")) == ([], [])
