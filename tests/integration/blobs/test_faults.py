"""A bucket of blobs that fails: 5xx, slow, cut, wrong bytes, refused. Nothing wrong is read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from quire.errors import BlobsUnavailable, Damaged, FetchFailed, Gone, SourceRefused
from quire.fetch import object_store
from quire.fetch.blobs.bucket import BlobBucket, blob_key
from quire.fetch.blobs.cache import BlobCache
from tests import buckets, servers
from tests.servers import Asked, Proxy, Reply

CONTENT = b"%PDF-1.7 some bytes of a document"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
LARGE = b"".join(b"%015d\n" % number for number in range((20 << 20) // 16))


class Faulty(Proxy):
    """A proxy whose faults fall on requests of some methods for blobs, or on all requests."""

    methods: tuple[str, ...] = ("GET",)
    with_probe = False
    spoil_uploads = 0

    def is_for_bytes(self, asked: Asked) -> bool:
        is_probe = asked.path.endswith("/probe")
        return asked.method in self.methods and (self.with_probe or not is_probe)

    def reply(self, asked: Asked) -> Reply:
        if asked.method == "PUT" and self.spoil_uploads:
            self.spoil_uploads -= 1
            asked = replace(asked, body=bytes([asked.body[0] ^ 255]) + asked.body[1:])
        return super().reply(asked)

    def count(self, method: str) -> int:
        return sum(each.method == method for each in self.asked)


@pytest.fixture
def proxy(moto_url: str) -> Iterator[Faulty]:
    host, port = moto_url.removeprefix("http://").split(":")
    with Faulty(host, int(port)) as made:
        yield made


@pytest.fixture
def blobs(proxy: Faulty, bucket_url: str, tmp_path: Path) -> BlobBucket:
    return buckets.blobs(bucket_url, proxy.url, tmp_path / "one")


@pytest.fixture
def other(proxy: Faulty, bucket_url: str, tmp_path: Path) -> BlobBucket:
    """The same bucket, on another machine."""
    return buckets.blobs(bucket_url, proxy.url, tmp_path / "other")


def put(blobs: BlobBucket, content: bytes = CONTENT) -> str:
    part = blobs.part_path("a task")
    part.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    blobs.put(part, digest)
    return digest


def test_a_large_file_goes_in_parts_and_comes_in_ranges(
    blobs: BlobBucket, other: BlobBucket, proxy: Faulty
):
    digest = put(blobs, LARGE)
    assert proxy.count("PUT") == 3
    assert other.checked_path(digest, len(LARGE)).read_bytes() == LARGE
    assert [each.range for each in proxy.bytes_asked() if each.range] == [
        (0, (8 << 20) - 1),
        (8 << 20, (16 << 20) - 1),
        (16 << 20, len(LARGE) - 1),
    ]
    assert other.verify(digest)
    put(other, LARGE)  # what is proved to be there is not sent again
    assert proxy.count("PUT") == 3


def test_a_file_is_asked_for_once_on_each_machine(
    blobs: BlobBucket, other: BlobBucket, proxy: Faulty
):
    digest = put(blobs)
    blobs.checked_path(digest, len(CONTENT))
    assert proxy.count("GET") == 0
    other.checked_path(digest, len(CONTENT))
    other.checked_path(digest, len(CONTENT))
    assert proxy.count("GET") == 1


@pytest.mark.parametrize(
    "fault", [servers.answer(503), servers.answer(500), servers.cut(5)], ids=["503", "500", "cut"]
)
def test_a_passing_fault_is_tried_away(
    proxy: Faulty, bucket_url: str, tmp_path: Path, fault: servers.Fault
):
    timeouts = replace(buckets.SHORT, retries=2)
    blobs = buckets.blobs(bucket_url, proxy.url, tmp_path / "one", timeouts=timeouts)
    proxy.methods = ("PUT", "GET")
    proxy.faults = [fault]
    digest = put(blobs)
    blobs.cache.delete(digest)
    proxy.faults = [fault]
    assert blobs.checked_path(digest, len(CONTENT)).read_bytes() == CONTENT


@pytest.mark.parametrize("fault", [servers.answer(503), servers.silence()], ids=["503", "silent"])
def test_a_store_that_does_not_answer_is_waited_for_and_named(
    blobs: BlobBucket, other: BlobBucket, proxy: Faulty, fault: servers.Fault
):
    digest = put(blobs)
    proxy.methods, proxy.with_probe, proxy.always = ("GET", "HEAD", "PUT"), True, fault
    with pytest.raises(BlobsUnavailable, match=r"^s3://b-.*/quire: cannot be read, the store does"):
        other.checked_path(digest, len(CONTENT))
    with pytest.raises(BlobsUnavailable, match="cannot be written to, the store does not respond"):
        put(blobs, b"others")
    with pytest.raises(BlobsUnavailable, match="nothing is fetched"):
        blobs.check_available()
    proxy.always = None
    blobs.check_available()
    assert other.checked_path(digest, len(CONTENT)).read_bytes() == CONTENT


@pytest.mark.parametrize("fault", [servers.answer(500), servers.trickle(), servers.cut(3)])
def test_one_object_that_cannot_be_read_costs_an_attempt(
    blobs: BlobBucket, other: BlobBucket, proxy: Faulty, fault: servers.Fault
):
    digest = put(blobs, CONTENT * 20)
    proxy.always = fault
    with pytest.raises(FetchFailed, match=r"cannot be read \("):
        other.checked_path(digest, 20 * len(CONTENT))
    assert not other.path(digest).exists()


def test_wrong_bytes_are_asked_for_once_more(blobs: BlobBucket, other: BlobBucket, proxy: Faulty):
    digest = put(blobs)
    proxy.faults = [servers.damage()]
    assert other.checked_path(digest, len(CONTENT)).read_bytes() == CONTENT
    assert proxy.count("GET") == 2


def test_bytes_that_stay_wrong_are_never_given(blobs: BlobBucket, other: BlobBucket, proxy: Faulty):
    digest = put(blobs)
    proxy.always = servers.damage()
    with pytest.raises(Damaged, match=r"other bytes.*expected sha256 .*, got .*, 2 times"):
        other.checked_path(digest, len(CONTENT))
    assert not other.path(digest).exists()
    assert not other.verify(digest)
    assert [*(other.cache.root / "parts").iterdir()] == []


def test_a_damaged_file_of_this_machine_is_brought_again(blobs: BlobBucket, proxy: Faulty):
    digest = put(blobs)
    place = blobs.path(digest)
    place.unlink()
    place.write_bytes(CONTENT[:-1] + b"!")
    assert blobs.checked_path(digest, len(CONTENT)).read_bytes() == CONTENT
    assert proxy.count("GET") == 1


def test_bytes_that_are_changed_on_their_way_are_noticed(blobs: BlobBucket, proxy: Faulty):
    proxy.spoil_uploads = 1
    with pytest.raises(
        FetchFailed, match=r"the stored bytes differ from the upload .*expected sha256"
    ):
        put(blobs)
    put(blobs)
    assert blobs.verify(DIGEST)


def test_an_etag_that_is_no_hash_is_proved_by_reading(blobs: BlobBucket, proxy: Faulty):
    """As buckets with a key of their own have it."""
    proxy.methods = ("PUT",)

    def retag(reply: Reply) -> Reply:
        return replace(reply, headers={**reply.headers, "etag": '"0123"'})

    proxy.always = servers.Fault(retag)
    put(blobs)
    assert proxy.count("GET") == 1


def test_what_will_not_pass_says_what_to_do(
    blobs: BlobBucket, proxy: Faulty, moto_url: str, tmp_path: Path
):
    put(blobs)
    proxy.methods = ("GET", "PUT", "HEAD")
    proxy.always = servers.answer(403)
    with pytest.raises(SourceRefused, match=r"access denied.*list, read, write and delete.*AWS"):
        put(blobs)
    assert "access denied" in " ".join(blobs.probe())
    nowhere = buckets.blobs("s3://not-there-at-all", moto_url, tmp_path / "nowhere")
    with pytest.raises(
        SourceRefused, match=r"the bucket 'not-there-at-all' does not exist.*QUIRE_BLOBS"
    ):
        put(nowhere)
    with pytest.raises(SourceRefused, match="does not exist"):
        nowhere.checked_path("0" * 64, 1)
    assert "does not exist" in " ".join(nowhere.probe())


def test_a_probe_leaves_nothing(blobs: BlobBucket, other: BlobBucket):
    assert blobs.probe() == []
    assert buckets.keys(blobs) == []
    put(blobs)
    blobs.delete(DIGEST)
    assert buckets.keys(blobs) == []
    with pytest.raises(Gone, match=r"missing from s3://.*Fetch the document again"):
        other.checked_path(DIGEST, len(CONTENT))


def test_the_sizes_of_many_are_listed_in_any_order(blobs: BlobBucket, proxy: Faulty):
    digests = [put(blobs, b"%d words" % number) for number in range(7)]
    found = blobs.sizes([*reversed(digests), "0" * 64, "f" * 64])
    assert found == dict.fromkeys(digests, len(b"0 words"))
    assert proxy.count("GET") == 1


def test_the_folder_in_front_is_bounded_and_keeps_what_was_used_last(
    bucket_url: str, moto_url: str, tmp_path: Path
):
    bucket = object_store.Bucket(bucket_url, endpoint=moto_url, timeouts=buckets.SHORT)
    blobs = BlobBucket(bucket, BlobCache(tmp_path / "c", 20_000, grace_seconds=-1.0))
    digests = [put(blobs, bytes([number]) * 2_000) for number in range(20)]
    here = [blobs.path(each).exists() for each in digests]
    assert here[-4:] == [True] * 4
    assert 4 <= sum(here) <= 11
    assert not here[0]
    assert blobs.checked_path(digests[0], 2_000).read_bytes() == b"\0" * 2_000


def test_a_file_that_another_process_uses_is_not_removed(
    bucket_url: str, moto_url: str, tmp_path: Path
):
    blobs = buckets.blobs(bucket_url, moto_url, tmp_path / "c")
    used, idle = put(blobs, b"u" * 2_000), put(blobs, b"i" * 2_000)
    holder = BlobCache(tmp_path / "c", 1)
    assert holder.pinned_path(used, 2_000)
    for number in blobs.cache._pinned.values():  # as a process that has ended
        os.close(number)
    tight = BlobCache(tmp_path / "c", 1, grace_seconds=60.0)
    assert tight.evict() == 0  # whoever asked for it a moment ago may be about to open it
    for each in (used, idle):
        os.utime(blobs.path(each), (1, blobs.path(each).stat().st_mtime))
    assert tight.evict() == 1
    assert blobs.path(used).exists()
    assert not blobs.path(idle).exists()


def test_keys_are_below_the_prefix(blobs: BlobBucket):
    digest = put(blobs)
    assert buckets.keys(blobs) == [blob_key(digest)]
    assert blobs.bucket.key(blob_key(digest)) == f"quire/{digest[:2]}/{digest[2:]}"
