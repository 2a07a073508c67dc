"""Opens the blob storage that the settings name: a folder, or a bucket with a local cache."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from quire.fetch.blobs.bucket import BlobBucket
    from quire.fetch.blobs.folder import BlobFolder

#: Content-addressed storage of file bytes; both classes have the same methods.
Blobs: TypeAlias = "BlobFolder | BlobBucket"


def open_blobs(settings: Mapping[str, Any]) -> Blobs:
    """Return the blob storage; one object per process, which caches what it has verified."""
    return _open(
        str(settings["home"]),
        str(settings.get("blobs") or ""),
        str(settings.get("bucket_endpoint") or ""),
        int(settings.get("blob_cache_bytes") or 0),
    )


@cache
def _open(home: str, url: str, endpoint: str, cache_bytes: int) -> Blobs:
    if not url:
        from quire.fetch.blobs.folder import BlobFolder

        return BlobFolder(Path(home) / "blobs")
    from quire.fetch.blobs.bucket import BlobBucket
    from quire.fetch.blobs.cache import BlobCache
    from quire.fetch.object_store import Bucket

    # Never the blob folder: its files may exist nowhere else.
    return BlobBucket(Bucket(url, endpoint=endpoint), BlobCache(Path(home) / "cache", cache_bytes))
