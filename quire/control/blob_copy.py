"""Copy the files of documents from the current blob storage to a bucket.

Every blob is hashed before it goes and proved after it came. What is there already with its size
is not sent again, so a copy that was ended goes on where it was. Nothing is switched and nothing
is removed.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from quire.errors import Damaged, Gone
from quire.fetch.blobs.backend import Blobs
from quire.fetch.blobs.bucket import BlobBucket
from quire.store.db.engine import Database
from quire.store.documents.gc import count_used_blobs, used_blobs

#: Blobs that are copied concurrently.
AT_ONCE = 8
Tell = Callable[[str, int, int], None]


@dataclass(slots=True)
class Copied:
    """The result of a copy."""

    copied: int = 0
    copied_bytes: int = 0
    present: int = 0
    #: Errors of blobs that could not be copied, by digest.
    lost: dict[str, str] = field(default_factory=dict)


def copy(db: Database, source: Blobs, target: BlobBucket, tell: Tell) -> Copied:
    """Copy all blobs that documents use, then verify that they exist."""
    done = Copied()
    with db.read() as conn:
        total = count_used_blobs(conn)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for some in used_blobs(db):
            sizes = target.sizes([digest for digest, _ in some])
            missing = [(d, s) for d, s in some if sizes.get(d) != s and d not in done.lost]
            done.present += len(some) - len(missing)
            for digest, size, wrong in pool.map(lambda one: _one(source, target, *one), missing):
                if wrong is not None:
                    done.lost[digest] = wrong
                else:
                    done.copied += 1
                    done.copied_bytes += size
                tell("files", done.copied + done.present + len(done.lost), total)
    return done


def _one(source: Blobs, target: BlobBucket, digest: str, size: int) -> tuple[str, int, str | None]:
    try:
        target.upload(digest, source.checked_path(digest, size), size)
    except (Gone, Damaged) as error:
        return digest, size, str(error)
    return digest, size, None
