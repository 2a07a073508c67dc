"""The objects of one bucket of S3, Google or Azure: put, read, list, delete, by obstore.

What it cannot do now is Transient, what it will not do is Permanent, and both say which bucket
and what to check. An object that a store holds is proved by its ETag where that is a hash of the
bytes, else by reading it back.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from quire.errors import BadInput, BlobsUnavailable, FetchFailed, QuireError, SourceRefused
from quire.fetch.sources.bucket import CHAINS, NO_BUCKET, REFUSED, first_line, library

SCHEMES = ("s3", "gs", "az")
PIECE = 8 << 20
#: Parts of one upload that are on their way at a time, and the most that S3 allows of one.
AT_ONCE, MOST_PARTS = 4, 10_000
_RIGHTS = "Quire must be allowed to list, read, write and delete objects there"


class Missing(Exception):
    """There is no object of that key."""


class Found(NamedTuple):
    """What a store tells of an object."""

    key: str
    size: int
    etag: str | None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one request may take, and how often and how long it is tried again."""

    request_seconds: float = 60.0
    retries: int = 5
    retry_seconds: float = 45.0
    #: For the question whether the store answers at all.
    probe_seconds: float = 10.0
    #: For a request to delete: the collector holds locks of the database meanwhile.
    delete_seconds: float = 3.0


#: For all who do not say otherwise.
PATIENCE = Patience()


class Bucket:
    """The objects below `scheme://bucket/prefix`."""

    def __init__(self, url: str, *, endpoint: str = "", patience: Patience | None = None) -> None:
        self.scheme, self.name, self.prefix = parsed(url)
        self.url = "/".join(filter(None, (f"{self.scheme}://{self.name}", self.prefix)))
        self.endpoint = endpoint
        self._patience = patience or PATIENCE

    def put(self, key: str, path: Path) -> None:
        """Bring a file into the bucket, in parts where it is large, and prove that it is there."""
        size = path.stat().st_size
        part = part_size(size)
        with self._words("cannot be written to"):
            made = library().put(
                self._store, self.key(key), path, chunk_size=part, max_concurrency=AT_ONCE,
                use_multipart=size > part,
            )  # fmt: skip
        if not is_tag_of(made["e_tag"], path, part):
            self._read_back(key, path)

    def _read_back(self, key: str, path: Path) -> None:
        """Compare what the store now holds with the file."""
        with path.open("rb") as file:
            expected = hashlib.file_digest(file, "sha256").hexdigest()
        try:
            got = self.sha256(key)
        except Missing:
            got = "nothing"
        if got != expected:
            raise FetchFailed(
                f"{self.url}: holds other bytes than were written to it (expected sha256 "
                f"{expected}, got {got}). The work is tried again."
            )

    def sha256(self, key: str) -> str:
        """Hash the bytes of an object as they come, or raise Missing."""
        digest = hashlib.sha256()
        found = self.find(key)
        if found is None:
            raise Missing(key)
        for piece in self.pieces(key, found.size):
            digest.update(piece)
        return digest.hexdigest()

    def pieces(self, key: str, size: int) -> Iterator[bytes]:
        """Read an object piece by piece, each with a time limit of its own, or raise Missing."""
        for start in range(0, size, PIECE):
            with self._words("cannot be read"):
                piece = library().get_range(
                    self._store, self.key(key), start=start, length=min(PIECE, size - start)
                )
            yield bytes(piece)

    def find(self, key: str) -> Found | None:
        """Return what is told of an object, or None where there is none."""
        try:
            with self._words("cannot be read"):
                told = library().head(self._store, self.key(key))
        except Missing:
            return None
        return Found(key, int(told["size"]), told["e_tag"])

    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        try:
            with self._words("cannot be deleted from"):
                library().delete(self._brief, self.key(key))
        except Missing:
            return

    def delete_below(self, folder: str) -> None:
        """Delete all objects whose keys begin with that of a folder."""
        with self._words("cannot be deleted from"):
            for batch in library().list(self._brief, self.key(folder)):
                for each in batch:
                    library().delete(self._brief, each["path"])

    def listed(self, after: str = "") -> Iterator[Found]:
        """List objects in the order of their keys."""
        with self._words("cannot be listed"):
            for batch in library().list(
                self._store, self.prefix or None, offset=self.key(after) if after else None
            ):
                for each in batch:
                    name = str(each["path"]).removeprefix(self.prefix).lstrip("/")
                    yield Found(name, int(each["size"]), each["e_tag"])

    def probe(self, key: str) -> list[str]:
        """Write, read, list and delete an object of a few bytes; return what is wrong."""
        content = os.urandom(16)
        try:
            with self._words("cannot be written to"):
                library().put(self._quick, self.key(key), content)
            with self._words("cannot be read"):
                got = bytes(library().get(self._quick, self.key(key)).bytes())
            with self._words("cannot be listed"):
                next(iter(library().list(self._quick, self.key(key), chunk_size=1)), None)
            with self._words("cannot be deleted from"):
                library().delete(self._quick, self.key(key))
        except (QuireError, Missing) as error:
            return [str(error) if isinstance(error, QuireError) else self._vanished()]
        return [] if got == content else [f"{self.url}: gives other bytes than were written to it."]

    def answers(self) -> bool:
        """Tell whether the store answers anything at all, be it a refusal."""
        obstore = library()
        try:
            obstore.head(self._quick, self.key("probe"))
        except (
            FileNotFoundError,
            PermissionError,
            obstore.exceptions.NotFoundError,
            obstore.exceptions.PermissionDeniedError,
            obstore.exceptions.UnauthenticatedError,
        ):
            return True
        except obstore.exceptions.BaseError:
            return False
        return True

    def sign(self, key: str, seconds: float) -> str | None:
        """Return a URL that gives an object for some time, or None where none can be made."""
        # For Google, obstore takes the key into the URL as it is.
        named = quote(self.key(key)) if self.scheme == "gs" else self.key(key)
        try:
            return str(library().sign(self._quick, "GET", named, timedelta(seconds=seconds)))
        except library().exceptions.BaseError:
            return None

    def key(self, name: str) -> str:
        """Return the whole key of an object."""
        return f"{self.prefix}/{name}" if self.prefix else name

    @cached_property
    def _store(self) -> Any:
        return self._open(self._patience)

    @cached_property
    def _brief(self) -> Any:
        seconds = self._patience.delete_seconds
        return self._open(replace(self._patience, request_seconds=seconds, retries=0))

    @cached_property
    def _quick(self) -> Any:
        seconds = self._patience.probe_seconds
        return self._open(replace(self._patience, request_seconds=seconds, retries=0))

    def _open(self, patience: Patience) -> Any:
        library()
        from obstore import store

        kinds = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
        kind: Any = kinds[self.scheme]
        given: dict[str, Any] = {}
        if self.endpoint:
            given["base_url" if self.scheme == "gs" else "endpoint"] = self.endpoint
        return kind(
            self.name,
            client_options={
                "allow_http": self.endpoint.startswith("http://"),
                "timeout": timedelta(seconds=patience.request_seconds),
            },
            retry_config={
                "max_retries": patience.retries,
                "retry_timeout": timedelta(seconds=patience.retry_seconds),
            },
            **given,
        )

    @contextmanager
    def _words(self, what: str) -> Iterator[None]:
        """Turn errors of obstore into ours."""
        exceptions = library().exceptions
        try:
            yield
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            if any(code in str(error) for code in NO_BUCKET):
                raise self._no_bucket() from error
            raise Missing(first_line(error)) from error
        except (
            exceptions.PermissionDeniedError,
            exceptions.UnauthenticatedError,
            PermissionError,
        ) as error:
            raise self._refused(what, error) from error
        except exceptions.BaseError as error:
            raise self._worded(what, error) from error

    def _worded(self, what: str, error: Exception) -> QuireError:
        text = str(error)
        if any(code in text for code in NO_BUCKET):
            return self._no_bucket()
        if REFUSED.search(text):
            return self._refused(what, error)
        if self.answers():
            return FetchFailed(
                f"{self.url}: {what} ({first_line(error)}). The work is tried again."
            )
        return BlobsUnavailable(
            f"{self.url}: {what}, the store does not answer ({first_line(error)}). Check the "
            f"network and {CHAINS[self.scheme]}; the work goes on when it does."
        )

    def _no_bucket(self) -> SourceRefused:
        return SourceRefused(
            f"{self.url}: there is no bucket {self.name!r}. Make it, or name another in "
            "QUIRE_BLOBS."
        )

    def _refused(self, what: str, error: Exception) -> SourceRefused:
        return SourceRefused(
            f"{self.url}: {what}, access is refused ({first_line(error)}). {_RIGHTS}; check "
            f"{CHAINS[self.scheme]}."
        )

    def _vanished(self) -> str:
        return f"{self.url}: an object that was just written cannot be found. Is another at work?"


def parsed(url: str) -> tuple[str, str, str]:
    """Return scheme, bucket and prefix of a URL, or raise BadInput."""
    scheme, mark, rest = url.partition("://")
    name, _, prefix = rest.partition("/")
    if not mark or scheme.lower() not in SCHEMES or not name or any(c in rest for c in "?#\\"):
        raise BadInput(
            f"QUIRE_BLOBS: {url!r} names no bucket. Write s3://BUCKET/PREFIX, gs://… or az://…, "
            "or leave it empty for a folder in the home."
        )
    return scheme.lower(), name, "/".join(filter(None, prefix.split("/")))


def part_size(size: int) -> int:
    """Return how large the parts of an upload are."""
    part = PIECE
    while part * MOST_PARTS < size:
        part *= 2
    return part


def is_tag_of(etag: str | None, path: Path, part: int) -> bool:
    """Tell whether an ETag is the MD5 of a file, or of the MD5s of its parts."""
    if not etag:
        return False
    whole, sums = hashlib.md5(usedforsecurity=False), []
    with path.open("rb") as file:
        while piece := file.read(part):
            whole.update(piece)
            sums.append(hashlib.md5(piece, usedforsecurity=False).digest())
    of_parts = hashlib.md5(b"".join(sums), usedforsecurity=False).hexdigest()
    return etag.strip('"').lower() in (whole.hexdigest(), f"{of_parts}-{len(sums)}")
