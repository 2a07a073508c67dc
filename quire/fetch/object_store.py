"""Objects of one S3, Google or Azure bucket: put, read, list and delete with obstore.

Failures that may pass are `Transient`, refusals are `Permanent`; both name the bucket and what to
check. An upload is verified by its ETag if that is a hash of the bytes, else by reading it back.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from quire.errors import (
    BadInput,
    BlobsUnavailable,
    FetchFailed,
    QuireError,
    SourceRefused,
    install_hint,
)

SCHEMES = ("s3", "gs", "az")
CHUNK_BYTES = 8 << 20
#: Parts of one upload sent concurrently, and the maximum number of parts that S3 allows.
UPLOAD_CONCURRENCY, MAX_PARTS = 4, 10_000
_PERMISSIONS = "Quire needs permission to list, read, write and delete objects there"
#: obstore raises one class for all failed listings: its text tells what went wrong.
_TEXTS = {
    "no bucket": re.compile("NoSuchBucket|ContainerNotFound"),
    # Where client libraries look for the machine's own identity.
    "no credentials": re.compile(r"//(169\.254\.\d+\.\d+|metadata\.google\.internal)\b"),
    "denied": re.compile(r"status code: 40[13]\b"),
}
CREDENTIAL_SOURCES = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, or the role of the machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or the account of the machine",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or the machine's identity",
}


class ObjectMissing(Exception):
    """No object has that key."""


class ObjectInfo(NamedTuple):
    """Key, size and ETag of an object."""

    key: str
    size: int
    etag: str | None


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits and retries of requests."""

    request_seconds: float = 60.0
    retries: int = 5
    retry_seconds: float = 45.0
    #: For checks whether the store is reachable.
    probe_seconds: float = 10.0
    #: For deletes: garbage collection holds database locks meanwhile.
    delete_seconds: float = 3.0


class Bucket:
    """The objects below `scheme://bucket/prefix`."""

    def __init__(self, url: str, *, endpoint: str = "", timeouts: Timeouts | None = None) -> None:
        self.scheme, self.name, self.prefix = parse_bucket_url(url)
        self.url = "/".join(filter(None, (f"{self.scheme}://{self.name}", self.prefix)))
        self.endpoint = endpoint
        self._timeouts = timeouts or Timeouts()

    def put(self, key: str, path: Path) -> None:
        """Upload a file, in parts if it is large, and verify that it arrived."""
        size = path.stat().st_size
        part = part_size(size)
        with self._translate_errors("cannot be written to"):
            made = load_obstore().put(
                self._store,
                self.key(key),
                path,
                chunk_size=part,
                max_concurrency=UPLOAD_CONCURRENCY,
                use_multipart=size > part,
            )
        if not etag_matches(made["e_tag"], path, part):
            self._read_back(key, path)

    def _read_back(self, key: str, path: Path) -> None:
        with path.open("rb") as file:
            expected = hashlib.file_digest(file, "sha256").hexdigest()
        try:
            got = self.sha256(key)
        except ObjectMissing:
            got = "nothing"
        if got != expected:
            raise FetchFailed(
                f"{self.url}: the stored bytes differ from the upload (expected sha256 "
                f"{expected}, got {got})."
            )

    def sha256(self, key: str) -> str:
        """Hash an object while streaming it, or raise ObjectMissing."""
        digest = hashlib.sha256()
        found = self.head(key)
        if found is None:
            raise ObjectMissing(key)
        for piece in self.chunks(key, found.size):
            digest.update(piece)
        return digest.hexdigest()

    def chunks(self, key: str, size: int) -> Iterator[bytes]:
        """Read an object in chunks, each with its own time limit, or raise ObjectMissing."""
        for start in range(0, size, CHUNK_BYTES):
            with self._translate_errors("cannot be read"):
                piece = load_obstore().get_range(
                    self._store, self.key(key), start=start, length=min(CHUNK_BYTES, size - start)
                )
            yield bytes(piece)

    def head(self, key: str) -> ObjectInfo | None:
        """Return the metadata of an object, or None if it does not exist."""
        try:
            with self._translate_errors("cannot be read"):
                found = load_obstore().head(self._store, self.key(key))
        except ObjectMissing:
            return None
        return ObjectInfo(key, int(found["size"]), found["e_tag"])

    def delete(self, key: str) -> None:
        """Delete an object if it exists."""
        try:
            with self._translate_errors("cannot be deleted from"):
                load_obstore().delete(self._delete_store, self.key(key))
        except ObjectMissing:
            return

    def delete_below(self, folder: str) -> None:
        """Delete all objects whose keys begin with a prefix."""
        with self._translate_errors("cannot be deleted from"):
            for batch in load_obstore().list(self._delete_store, self.key(folder)):
                for each in batch:
                    load_obstore().delete(self._delete_store, each["path"])

    def list_objects(self, after: str = "") -> Iterator[ObjectInfo]:
        """List objects in key order."""
        with self._translate_errors("cannot be listed"):
            for batch in load_obstore().list(
                self._store, self.prefix or None, offset=self.key(after) if after else None
            ):
                for each in batch:
                    name = str(each["path"]).removeprefix(self.prefix).lstrip("/")
                    yield ObjectInfo(name, int(each["size"]), each["e_tag"])

    def probe(self, key: str) -> list[str]:
        """Write, read, list and delete a small object; return what failed."""
        content = os.urandom(16)
        try:
            with self._translate_errors("cannot be written to"):
                load_obstore().put(self._probe_store, self.key(key), content)
            with self._translate_errors("cannot be read"):
                got = bytes(load_obstore().get(self._probe_store, self.key(key)).bytes())
            with self._translate_errors("cannot be listed"):
                next(
                    iter(load_obstore().list(self._probe_store, self.key(key), chunk_size=1)), None
                )
            with self._translate_errors("cannot be deleted from"):
                load_obstore().delete(self._probe_store, self.key(key))
        except (QuireError, ObjectMissing) as error:
            lost = f"{self.url}: an object written a moment ago cannot be found."
            return [str(error) if isinstance(error, QuireError) else lost]
        return [] if got == content else [f"{self.url}: gives other bytes than were written to it."]

    def is_reachable(self) -> bool:
        """Tell whether the store responds at all, even with a refusal."""
        obstore = load_obstore()
        try:
            obstore.head(self._probe_store, self.key("probe"))
        except obstore_errors() as error:
            return classify(error) in ("missing", "denied", "no bucket")
        return True

    def sign(self, key: str, seconds: float) -> str | None:
        """Return a presigned download URL, or None if the credentials cannot sign."""
        # For Google, obstore puts the key into the URL unescaped.
        named = quote(self.key(key)) if self.scheme == "gs" else self.key(key)
        try:
            return str(
                load_obstore().sign(self._probe_store, "GET", named, timedelta(seconds=seconds))
            )
        except load_obstore().exceptions.BaseError:
            return None

    def key(self, name: str) -> str:
        """Return the full key of an object, with the prefix."""
        return f"{self.prefix}/{name}" if self.prefix else name

    @cached_property
    def _store(self) -> Any:
        return self._open(self._timeouts.request_seconds, self._timeouts.retries)

    @cached_property
    def _delete_store(self) -> Any:
        return self._open(self._timeouts.delete_seconds, 0)

    @cached_property
    def _probe_store(self) -> Any:
        return self._open(self._timeouts.probe_seconds, 0)

    def _open(self, timeout: float, retries: int) -> Any:
        retry_for = timedelta(seconds=self._timeouts.retry_seconds)
        retry = {"max_retries": retries, "retry_timeout": retry_for}
        return open_store(
            self.scheme, self.name, self.endpoint, timeout=timeout, retry_config=retry
        )

    @contextmanager
    def _translate_errors(self, what: str) -> Iterator[None]:
        """Translate obstore's errors; `what` says which operation failed."""
        try:
            yield
        except obstore_errors() as error:
            raise self._translated(what, error) from error

    def _translated(self, what: str, error: Exception) -> Exception:
        kind, why = classify(error), first_line(error)
        if kind == "no bucket":
            return SourceRefused(
                f"{self.url}: the bucket {self.name!r} does not exist. Create it, or set "
                "QUIRE_BLOBS to another."
            )
        if kind == "missing":
            return ObjectMissing(why)
        if kind == "denied":
            return SourceRefused(
                f"{self.url}: {what}, access denied ({why}). {_PERMISSIONS}; check "
                f"{CREDENTIAL_SOURCES[self.scheme]}."
            )
        if self.is_reachable():
            return FetchFailed(f"{self.url}: {what} ({why}).")
        return BlobsUnavailable(
            f"{self.url}: {what}, the store does not respond ({why}). Check the "
            f"network and {CREDENTIAL_SOURCES[self.scheme]}; work resumes when it responds."
        )


def parse_bucket_url(url: str) -> tuple[str, str, str]:
    """Return the scheme, bucket and prefix of a URL, or raise BadInput."""
    scheme, mark, rest = url.partition("://")
    name, _, prefix = rest.partition("/")
    if not mark or scheme.lower() not in SCHEMES or not name or any(c in rest for c in "?#\\"):
        raise BadInput(
            f"QUIRE_BLOBS: {url!r} is not a bucket. Write s3://BUCKET/PREFIX, gs://… or az://…, "
            "or leave it empty to use a folder in QUIRE_HOME."
        )
    return scheme.lower(), name, "/".join(filter(None, prefix.split("/")))


def open_store(scheme: str, bucket: str, endpoint: str, *, timeout: float, **options: Any) -> Any:
    """Open an obstore store; `endpoint` replaces the cloud's own."""
    load_obstore()
    from obstore import store

    kinds = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
    kind: Any = kinds[scheme]
    if endpoint:
        options["base_url" if scheme == "gs" else "endpoint"] = endpoint
    client = {
        "allow_http": endpoint.startswith("http://"),
        "timeout": timedelta(seconds=timeout),
    }
    return kind(bucket, client_options=client, **options)


def obstore_errors() -> tuple[type[Exception], ...]:
    """Return what obstore raises when an operation fails."""
    return load_obstore().exceptions.BaseError, FileNotFoundError, PermissionError


def classify(error: Exception) -> str:
    """Classify an error of obstore: missing, denied, no bucket, no credentials or failed."""
    exceptions = load_obstore().exceptions
    denied = exceptions.PermissionDeniedError, exceptions.UnauthenticatedError, PermissionError
    if isinstance(error, denied):
        return "denied"
    is_missing = isinstance(error, (exceptions.NotFoundError, FileNotFoundError))
    found = (kind for kind, text in _TEXTS.items() if text.search(str(error)))
    return next(found, "missing" if is_missing else "failed")


def part_size(size: int) -> int:
    """Return the part size of a multipart upload."""
    part = CHUNK_BYTES
    while part * MAX_PARTS < size:
        part *= 2
    return part


def etag_matches(etag: str | None, path: Path, part: int) -> bool:
    """Tell whether an ETag is the MD5 of a file, or the multipart MD5 of its parts."""
    if not etag:
        return False
    whole, sums = hashlib.md5(usedforsecurity=False), []
    with path.open("rb") as file:
        while piece := file.read(part):
            whole.update(piece)
            sums.append(hashlib.md5(piece, usedforsecurity=False).digest())
    of_parts = hashlib.md5(b"".join(sums), usedforsecurity=False).hexdigest()
    return etag.strip('"').lower() in (whole.hexdigest(), f"{of_parts}-{len(sums)}")


def load_obstore() -> Any:
    """Return obstore, or raise an error that says how to install it."""
    try:
        import obstore
        import obstore.exceptions
    except ImportError as error:
        raise SourceRefused(
            f"buckets: a required package is not installed. Run: {install_hint('s3')}"
        ) from error
    return obstore


def first_line(error: BaseException) -> str:
    """Return the first line of an error, without the library's internal details."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
