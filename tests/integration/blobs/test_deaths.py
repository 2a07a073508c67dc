"""Promises G1 and G2 over a bucket: a child killed around an upload loses and doubles nothing.

The one who asks and the worker have homes of their own; they share PostgreSQL and the bucket.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from quire.control import doctor
from quire.fetch.blobs.bucket import blob_key
from tests import buckets, documents
from tests.integration.processes import Site
from tests.shelf import PLAIN, logical_index

DYING = str(Path(__file__).with_name("dying_upload.py"))
STAGES = ("before", "middle", "after")


def book(stage: str) -> bytes:
    """A PDF of which the one for the middle is larger than a part of an upload."""
    whole = documents.pdf(f"words of the one that dies {stage}")
    if stage != "middle":
        return whole
    head, _, rest = whole.partition(b"\n")
    return head + b"\n%" + b"x" * (9 << 20) + b"\n" + rest


def test_a_child_killed_around_an_upload_leaves_the_index_of_a_calm_run(
    home: Path, tmp_path: Path, pg_url: str, bucket_url: str, moto_url: str
):
    folder, elsewhere = tmp_path / "in", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    digests = []
    for stage in STAGES:
        (folder / f"die-{stage}.pdf").write_bytes(book(stage))
        digests.append(hashlib.sha256(book(stage)).hexdigest())
    site = Site(home, pg_url).prepare()
    chosen = {"blobs": bucket_url, "bucket_endpoint": moto_url, "plugins": DYING}
    worker = site.worker(home=elsewhere, **chosen)
    try:
        job_id = site.submit("ingest", sources=[str(folder)], settings=PLAIN)
        assert site.until_over(job_id, within=200) == {"completed": 1}, worker.log
        assert {path.name for path in elsewhere.glob("died-*")} == {f"died-{s}" for s in STAGES}
        found = logical_index(site.app.db, folder)
        assert len(found) == len(STAGES)
        for one in found.values():
            assert one["state"] == "success"
            assert "words of the one that dies" in one["pages"][0]["text"]
        assert sorted(buckets.keys_at(bucket_url, moto_url)) == sorted(map(blob_key, digests))
        here = buckets.blobs(bucket_url, moto_url, tmp_path / "here")
        assert doctor.examine(site.app.db, blobs=here, deep=True).is_healthy
        assert not (home / "blobs").exists()
    finally:
        worker.tell_tree(9)
        worker.popen.wait(10)
        site.close()
