"""Buckets of S3, Google and Azure as a source.

obstore lists and signs; the bytes come by the one transfer, from URLs signed for each chunk.
Keys are listed in their order, so that the last key is the cursor.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from quire.errors import BadInput, FetchFailed, Gone, QuireError, SourceRefused, install_hint
from quire.fetch.blobs.azure_sas import mended
from quire.fetch.http_client import Request
from quire.fetch.items import PAGE, Check, Fetched, Item, Listed, Progress, Skipped, SourceOptions
from quire.fetch.names import safe_name, shown
from quire.fetch.network import require_allowed
from quire.fetch.sources.globs import chooser
from quire.fetch.transfer.download import Remote, transfer

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

    Store = AzureStore | GCSStore | S3Store

_SIGNED_FOR = timedelta(hours=1)
NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
REFUSED = re.compile(r"status code: 40[13]\b")
#: Where a library asks for the account of the machine when it is told of none.
METADATA = re.compile(r"//(169\.254\.\d+\.\d+|metadata\.google\.internal)\b")
CHAINS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, or the role of the machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or the account of the machine",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or the machine's identity",
}


class BucketSource:
    """One object, or all below a prefix."""

    def __init__(self, url: str, options: SourceOptions) -> None:
        scheme, _, rest = url.partition("://")
        self._scheme = scheme.lower()
        self._bucket, _, self._key = rest.partition("/")
        if not self._bucket:
            raise BadInput(f"{url}: names no bucket. Write {self._scheme}://BUCKET/PREFIX.")
        self._options = options
        self._wanted = chooser(options.include, options.exclude)
        self._store: Store | None = None

    def pages(self, after: str | None = None) -> Iterator[Listed]:
        """List in the order of keys; the cursor is the last key."""
        if after is None and (alone := self._alone()):
            yield Listed([alone], self._key)
            return
        if after == self._key and after:
            return
        obstore = library()
        prefix = self._key.strip("/")
        with self._plain_reasons():
            listing = obstore.list(
                self._opened(), prefix or None, offset=after or None, chunk_size=PAGE
            )
            for found in listing:
                yield self._page([*found], prefix)

    def _page(self, found: list[Any], prefix: str) -> Listed:
        kept = [each for each in found if self._wanted(_below(each["path"], prefix))]
        # Consoles mark a folder by an empty object whose key ends with a slash; obstore lists it
        # without that slash, under a key that does not exist.
        marks = {each["path"] for each in kept if not each["size"] and self._is_mark(each["path"])}
        url = f"{self._scheme}://{self._bucket}/"
        return Listed(
            [self._item(each, prefix) for each in kept if each["path"] not in marks],
            str(found[-1]["path"]),
            [Skipped(url + key, "the mark of a folder, not a file") for key in sorted(marks)],
        )

    def _is_mark(self, key: str) -> bool:
        try:
            with self._plain_reasons():
                library().head(self._opened(), key)
        except Gone:
            return True
        return False

    def fetch(self, item: Item, part: Path, progress: Progress, check: Check) -> Fetched:
        """Bring the verified bytes to `part`."""
        key = item.uri.removeprefix(f"{self._scheme}://{self._bucket}/")
        remote = Remote(lambda: self._request(key), etag_is_md5=self._scheme == "s3")
        return transfer(remote, item, part, self._options, progress, check)

    def doctor(self) -> list[str]:
        """Say whether the bucket can be listed and read."""
        url = f"{self._scheme}://{self._bucket}/{self._key}"
        try:
            page = next(self.pages(), Listed([], ""))
            if page.items:
                self._request(page.items[0].uri.removeprefix(f"{self._scheme}://{self._bucket}/"))
        except QuireError as error:
            return [str(error)]
        count = f"{len(page.items):,}" + (" or more" if len(page.items) >= PAGE else "")
        return [f"{url}: can be listed; objects found: {count}."]

    def _alone(self) -> Item | None:
        """Return the object that the URL names, if it names one."""
        if not self._key or self._key.endswith("/"):
            return None
        obstore = library()

        try:
            with self._plain_reasons():
                return self._item(obstore.head(self._opened(), self._key), self._key)
        except Gone:
            return None

    def _item(self, found: Any, prefix: str) -> Item:
        key = str(found["path"])
        inside, _, _ = _below(key, prefix).rpartition("/")
        return Item(
            uri=f"{self._scheme}://{self._bucket}/{key}",
            name=safe_name(key.rpartition("/")[2]),
            size=int(found["size"]),
            mtime=found["last_modified"].timestamp(),
            etag=_quoted(found["e_tag"]),
            version=found["version"],
            folder=shown(inside),
        )

    def _request(self, key: str) -> Request:
        obstore = library()
        # For Google, obstore takes the key into the URL as it is: "?" and "%" would mean something.
        named = quote(key) if self._scheme == "gs" else key
        with self._plain_reasons():
            url = str(obstore.sign(self._opened(), "GET", named, _SIGNED_FOR))
        return Request(mended(url) if self._scheme == "az" else url)

    def _opened(self) -> "Store":
        if self._store is None:
            self._store = self._open()
        return self._store

    def _open(self) -> "Store":
        from obstore import store

        endpoint = self._options.endpoint
        if endpoint:
            require_allowed(endpoint, self._options)
        kinds = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
        kind: Any = kinds[self._scheme]
        given: dict[str, Any] = {}
        if endpoint:
            given["base_url" if self._scheme == "gs" else "endpoint"] = endpoint
        if self._scheme == "gs" and self._options.credentials:
            given["application_credentials"] = str(self._options.credentials)
        opened: Store = kind(
            self._bucket,
            client_options={"allow_http": endpoint.startswith("http://"), "timeout": "60s"},
            retry_config={"max_retries": len(self._options.limits.delays)},
            **given,
        )
        return opened

    @contextmanager
    def _plain_reasons(self) -> Iterator[None]:
        """Turn errors of obstore into ours."""
        url = f"{self._scheme}://{self._bucket}/{self._key}"
        try:
            from obstore import exceptions
        except ImportError as error:
            raise SourceRefused(
                f"{url}: buckets need a package that is not installed. Run: {install_hint('s3')}"
            ) from error
        try:
            yield
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            raise Gone(f"{url}: is not there ({first_line(error)}).") from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise SourceRefused(
                f"{url}: access is refused ({first_line(error)}). Check {CHAINS[self._scheme]}."
            ) from error
        except (exceptions.InvalidPathError, exceptions.UnknownConfigurationKeyError) as error:
            raise SourceRefused(f"{url}: cannot be listed ({first_line(error)}).") from error
        except exceptions.BaseError as error:
            raise self._worded(url, error) from error

    def _worded(self, url: str, error: Exception) -> QuireError:
        """Word what has no class of its own: a listing fails with the server's answer only."""
        text, check = str(error), CHAINS[self._scheme]
        if any(code in text for code in NO_BUCKET):
            return Gone(f"{url}: there is no such bucket. Check its name.")
        if METADATA.search(text):
            return FetchFailed(
                f"{url}: no credentials were found. They are looked for in {check}, which has "
                "none or does not answer."
            )
        if REFUSED.search(text):
            return SourceRefused(f"{url}: access is refused ({first_line(error)}). Check {check}.")
        return FetchFailed(
            f"{url}: cannot be reached ({first_line(error)}). Check the network and {check}; "
            "the work is tried again."
        )


def library() -> Any:
    """Return obstore, or say how to get it."""
    try:
        import obstore
        import obstore.exceptions
    except ImportError as error:
        raise SourceRefused(
            f"buckets need a package that is not installed. Run: {install_hint('s3')}"
        ) from error
    return obstore


def _below(key: str, prefix: str) -> str:
    return key.removeprefix(prefix).lstrip("/") if prefix else key


def _quoted(etag: str | None) -> str | None:
    """Return a tag as headers have it: Azure lists it without quotes."""
    return f'"{etag}"' if etag and not etag.endswith('"') else etag


def first_line(error: BaseException) -> str:
    """Return what an error says, without what a library knows of itself."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
