"""Blobs in a bucket, with a bounded local cache.

Bytes are in the bucket before a blob is reported as stored, and hashed before they are used. The
cache may be deleted at any time; machines do not share it.
"""

import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from quire.errors import BlobsUnavailable, Damaged, Gone
from quire.fetch.blobs.cache import BlobCache
from quire.fetch.blobs.folder import copy_to
from quire.fetch.blobs.presigned import presigned_url
from quire.fetch.object_store import Bucket, ObjectMissing, etag_matches, part_size
from quire.fetch.transfer.part_file import PartFile, disk_errors, remove

#: Page images rendered from a blob are stored under this suffix and deleted with it.
RENDERED_SUFFIX = ".pages"
#: Up to this size a blob is uploaded without checking whether it exists.
RESEND_BYTES = 1 << 20
#: Downloads of one blob before it counts as damaged.
DOWNLOAD_TRIES = 2


class BlobBucket:
    """Blobs in a bucket."""

    def __init__(self, bucket: Bucket, cache: BlobCache) -> None:
        self.bucket = bucket
        self.cache = cache
        self._was_unreachable = False

    def part_path(self, name: str) -> Path:
        """Return the path of a part; equal names give equal paths."""
        return self.cache.part_path(name)

    def put(self, part: Path, digest: str, *, is_own: bool = False) -> None:
        """Store a part in the bucket; the caller has computed its SHA-256."""
        with disk_errors(digest, part):
            size = part.stat().st_size
        self.cache.put(part, digest, is_own=is_own)
        path = self.cache.pinned_path(digest, size)
        if path is None:  # deleted by someone else
            raise Gone(f"blob {digest[:12]}…: vanished from {self.cache.root}. Send it again.")
        self.cache.added(size)
        self.upload(digest, path, size)

    def upload(self, digest: str, path: Path, size: int) -> None:
        """Upload a verified file unless the bucket has it."""
        key = blob_key(digest)
        try:
            found = None if size <= RESEND_BYTES else self.bucket.head(key)
            is_same = found is not None and found.size == size
            if not (is_same and found and etag_matches(found.etag, path, part_size(size))):
                self.bucket.put(key, path)
        except BlobsUnavailable:
            self._was_unreachable = True
            raise
        except ObjectMissing as error:
            raise self._gone(digest) from error
        self._was_unreachable = False

    def path(self, digest: str) -> Path:
        """Return the cache path of a blob."""
        return self.cache.path(digest)

    def checked_path(self, digest: str, size: int) -> Path:
        """Return the path of the verified bytes, downloaded from the bucket if necessary."""
        if path := self.cache.pinned_path(digest, size):
            return path
        with self.cache.lock(digest):
            if path := self.cache.pinned_path(digest, size):
                return path
            try:
                self._download(digest, size)
            except BlobsUnavailable:
                self._was_unreachable = True
                raise
            path = self.cache.pinned_path(digest, size)
        if path is None:
            raise Damaged(
                f"blob {digest[:12]}…: changed in {self.cache.root} after the download. "
                "Check the disk, then try again."
            )
        self.cache.added(size)
        return path

    def _download(self, digest: str, size: int) -> None:
        """Download a blob into the cache; wrong bytes are downloaded once more."""
        part = self.part_path(f"get-{digest}")
        got = ""
        for _ in range(DOWNLOAD_TRIES):
            try:
                with closing(PartFile(part, digest, with_md5=False)) as file:
                    for piece in self.bucket.chunks(blob_key(digest), size):
                        file.write(piece)
                    got = file.sha256
            except ObjectMissing as error:
                remove(part)
                raise self._gone(digest) from error
            if got == digest:
                self.cache.put(part, digest, is_own=True)
                return
        remove(part)
        raise Damaged(
            f"blob {digest[:12]}…: {self.bucket.url} returns other bytes than were stored "
            f"(expected sha256 {digest}, got {got}), {DOWNLOAD_TRIES} times. They are not used; "
            "restore the object from a backup or an older version, or fetch the document again."
        )

    def verify(self, digest: str) -> bool:
        """Hash the bytes in the bucket and tell whether they match the digest."""
        try:
            return self.bucket.sha256(blob_key(digest)) == digest
        except ObjectMissing as error:
            raise self._gone(digest) from error

    def sizes(self, digests: Sequence[str]) -> dict[str, int]:
        """Return the sizes of the blobs that exist, by one listing."""
        found: dict[str, int] = {}
        if not digests:
            return found
        # Digests are sorted per tenant only, so min and max bound the listing.
        wanted, last = set(digests), blob_key(max(digests))
        after = blob_key(min(digests))[:-1]
        for each in self.bucket.list_objects(after=after):
            if each.key > last:
                break
            if (digest := each.key.replace("/", "")) in wanted:
                found[digest] = each.size
        return found

    def check_available(self) -> None:
        """Raise BlobsUnavailable if the bucket was unreachable before and still is.

        This avoids fetching a file again and again while it cannot be stored.
        """
        if self._was_unreachable and not self.bucket.is_reachable():
            raise BlobsUnavailable(
                f"{self.bucket.url}: the store does not respond, so nothing is fetched. Work "
                "resumes when it responds."
            )
        self._was_unreachable = False

    def probe(self) -> list[str]:
        """Return the problems of the bucket."""
        return self.bucket.probe(f"probe-{uuid.uuid4().hex}")

    def presigned_url(self, digest: str, name: str, media_type: str, *, inline: bool) -> str | None:
        """Return a presigned URL valid for some minutes, if the credentials can sign."""
        return presigned_url(self.bucket, blob_key(digest), name, media_type, inline=inline)

    def presigned_image(self, digest: str, name: str, draw: Callable[[], bytes]) -> str | None:
        """Return a presigned URL of a PNG rendered from a blob; rendered only if missing."""
        key = f"{blob_key(digest)}{RENDERED_SUFFIX}/{name}"
        url = presigned_url(self.bucket, key, name, "image/png", inline=True)
        if url is not None and self.bucket.head(key) is None:
            part = self.part_path(f"drawn-{uuid.uuid4().hex}")
            try:
                with disk_errors(name, part):
                    part.write_bytes(draw())
                self.bucket.put(key, part)
            finally:
                remove(part)
        return url

    def delete(self, digest: str) -> None:
        """Delete a blob and its rendered images from the bucket and the cache."""
        try:
            self.bucket.delete_below(f"{blob_key(digest)}{RENDERED_SUFFIX}")
            self.bucket.delete(blob_key(digest))
        except BlobsUnavailable:
            self._was_unreachable = True
            raise
        self.cache.delete(digest)

    def save_as(self, digest: str, name: str, target: Path, *, replace: bool = False) -> Path:
        """Write the original to a file, or under its own name to a folder."""
        found = self.bucket.head(blob_key(digest))
        if found is None:
            raise self._gone(digest)
        return copy_to(self.checked_path(digest, found.size), name, target, replace=replace)

    def abandoned_parts(self, before: float) -> list[Path]:
        """Return the parts not written to since a wall-clock time."""
        return self.cache.abandoned_parts(before)

    def _gone(self, digest: str) -> Gone:
        return Gone(f"blob {digest}: missing from {self.bucket.url}. Fetch the document again.")


def blob_key(digest: str) -> str:
    """Return the key of a blob: the same layout as in a blob folder."""
    if len(digest) != 64 or not digest.isalnum():
        raise ValueError(f"not a SHA-256: {digest!r}")
    return f"{digest[:2]}/{digest[2:]}"
