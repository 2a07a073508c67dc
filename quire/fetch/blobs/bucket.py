"""Blobs in a bucket, with a bounded folder of this machine in front of it.

Bytes are in the bucket before anyone is told of them, and what comes out of it is hashed before
anyone reads it. The folder may be deleted at any time; no two machines need the same one.
"""

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from quire.errors import BlobsUnavailable, Damaged, Gone
from quire.fetch.blobs.cache import BlobCache
from quire.fetch.blobs.folder import copied
from quire.fetch.blobs.presigned import signed
from quire.fetch.object_store import Bucket, Missing, is_tag_of, part_size
from quire.fetch.transfer.part_file import Part, disk_words, remove

#: What is drawn from a blob lies beside it and goes with it.
DRAWN = ".pages"
#: A smaller file is sent again rather than asked for.
SMALL = 1 << 20
#: Times that the bytes of one blob are asked for before they count as damaged.
TRIES = 2


class BlobBucket:
    """Blobs in a bucket."""

    def __init__(self, bucket: Bucket, cache: BlobCache) -> None:
        self.bucket = bucket
        self.cache = cache
        self._was_away = False

    def scratch(self, name: str) -> Path:
        """Return the place of a part; the same name gives the same place."""
        return self.cache.scratch(name)

    def put(self, part: Path, digest: str, *, is_own: bool = False) -> None:
        """Keep a part's bytes, whose SHA-256 the caller has computed, in the bucket."""
        with disk_words(digest, part):
            size = part.stat().st_size
        self.cache.put(part, digest, is_own=is_own)
        place = self.cache.held_path(digest, size)
        if place is None:  # removed by hand; nothing was promised yet
            raise Gone(f"blob {digest[:12]}…: vanished from {self.cache.root}. Send it again.")
        self.cache.came(size)
        self.keep(digest, place, size)

    def keep(self, digest: str, place: Path, size: int) -> None:
        """Bring a file whose bytes were verified into the bucket, if it is not there."""
        key = key_of(digest)
        try:
            if size <= SMALL or not self._is_there(key, place, size):
                self.bucket.put(key, place)
        except BlobsUnavailable:
            self._was_away = True
            raise
        except Missing as error:
            raise self._gone(digest) from error
        self._was_away = False

    def _is_there(self, key: str, place: Path, size: int) -> bool:
        found = self.bucket.find(key)
        if found is None or found.size != size:
            return False
        return is_tag_of(found.etag, place, part_size(size))

    def path(self, digest: str) -> Path:
        """Return where the bytes are on this machine while they are in use."""
        return self.cache.path(digest)

    def checked_path(self, digest: str, size: int) -> Path:
        """Return where the bytes are, verified, brought from the bucket if need be."""
        if place := self.cache.held_path(digest, size):
            return place
        with self.cache.alone(digest):
            if place := self.cache.held_path(digest, size):
                return place
            try:
                self._bring(digest, size)
            except BlobsUnavailable:
                self._was_away = True
                raise
            place = self.cache.held_path(digest, size)
        if place is None:
            raise Damaged(
                f"blob {digest[:12]}…: cannot be kept in {self.cache.root}: it changes there. "
                "Check the disk, then try again."
            )
        self.cache.came(size)
        return place

    def _bring(self, digest: str, size: int) -> None:
        """Bring the bytes into the folder; what is wrong is asked for once more."""
        part = self.scratch(f"get-{digest}")
        got = ""
        for _ in range(TRIES):
            try:
                with Part(part, digest, with_md5=False) as file:
                    for piece in self.bucket.pieces(key_of(digest), size):
                        file.write(piece)
                    got = file.sha256
            except Missing as error:
                remove(part)
                raise self._gone(digest) from error
            if got == digest:
                self.cache.put(part, digest, is_own=True)
                return
        remove(part)
        raise Damaged(
            f"blob {digest[:12]}…: {self.bucket.url} gives other bytes than were put there "
            f"(expected sha256 {digest}, got {got}), {TRIES} times. Nothing was read from them; "
            "put the object back from a backup or an older version, or fetch the document again."
        )

    def verify(self, digest: str) -> bool:
        """Hash the bytes in the bucket as they come, and tell whether they are what they were."""
        try:
            return self.bucket.sha256(key_of(digest)) == digest
        except Missing as error:
            raise self._gone(digest) from error

    def sizes(self, digests: Sequence[str]) -> dict[str, int]:
        """Return the sizes of those of these blobs that are in the bucket, by one listing."""
        found: dict[str, int] = {}
        if not digests:
            return found
        # Of several tenants, each in their order: the whole may have none.
        wanted, last = set(digests), key_of(max(digests))
        after = key_of(min(digests))[:-1]
        for each in self.bucket.listed(after=after):
            if each.key > last:
                break
            if (digest := each.key.replace("/", "")) in wanted:
                found[digest] = each.size
        return found

    def require(self) -> None:
        """Raise BlobsUnavailable where the bucket did not answer this process, and still does not.

        So a file is not fetched again and again from its source while it cannot be kept.
        """
        if self._was_away and not self.bucket.answers():
            raise BlobsUnavailable(
                f"{self.bucket.url}: the store does not answer, so nothing is fetched that could "
                "not be kept. The work goes on when it does."
            )
        self._was_away = False

    def probe(self) -> list[str]:
        """Say what is wrong with the bucket."""
        return self.bucket.probe(f"probe-{uuid.uuid4().hex}")

    def link(self, digest: str, name: str, media_type: str, *, shown: bool) -> str | None:
        """Return a URL that gives these bytes for some minutes, where the store signs such."""
        return signed(self.bucket, key_of(digest), name, media_type, shown=shown)

    def link_drawn(self, digest: str, name: str, draw: Callable[[], bytes]) -> str | None:
        """Return such a URL of a PNG that is drawn from a blob, and drawn only if it is missing."""
        key = f"{key_of(digest)}{DRAWN}/{name}"
        url = signed(self.bucket, key, name, "image/png", shown=True)
        if url is not None and self.bucket.find(key) is None:
            part = self.scratch(f"drawn-{uuid.uuid4().hex}")
            try:
                with disk_words(name, part):
                    part.write_bytes(draw())
                self.bucket.put(key, part)
            finally:
                remove(part)
        return url

    def delete(self, digest: str) -> None:
        """Remove the bytes, and what was drawn from them, from the bucket and this machine."""
        try:
            self.bucket.delete_below(f"{key_of(digest)}{DRAWN}")
            self.bucket.delete(key_of(digest))
        except BlobsUnavailable:
            self._was_away = True
            raise
        self.cache.delete(digest)

    def save_as(self, digest: str, name: str, target: Path, *, replace: bool = False) -> Path:
        """Write the original to a file, or under its own name into a folder."""
        found = self.bucket.find(key_of(digest))
        if found is None:
            raise self._gone(digest)
        return copied(self.checked_path(digest, found.size), name, target, replace=replace)

    def abandoned(self, before: float) -> list[Path]:
        """Return the parts that nobody has written to since a moment of the wall clock."""
        return self.cache.abandoned(before)

    def _gone(self, digest: str) -> Gone:
        return Gone(
            f"blob {digest}: its object is missing from {self.bucket.url}. "
            "Fetch the document again."
        )


def key_of(digest: str) -> str:
    """Return the key of a blob below the prefix: as the path of its file in a folder."""
    if len(digest) != 64 or not digest.isalnum():
        raise ValueError(f"not a SHA-256: {digest!r}")
    return f"{digest[:2]}/{digest[2:]}"
