"""Buckets of S3, Google and Azure as a source.

obstore lists objects and presigns URLs; `download` fetches the bytes, each chunk from a fresh URL.
Objects are listed in key order, so the last key is the cursor.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from quire.errors import BadInput, FetchFailed, Gone, QuireError, SourceRefused
from quire.fetch.blobs.presigned import fix_signature
from quire.fetch.http_client import Request
from quire.fetch.items import (
    PAGE_ITEMS,
    Check,
    Fetched,
    Item,
    ListingPage,
    Progress,
    Skipped,
    SourceOptions,
)
from quire.fetch.names import printable_name, safe_name
from quire.fetch.network import require_allowed
from quire.fetch.object_store import (
    CREDENTIAL_SOURCES,
    classify,
    first_line,
    load_obstore,
    obstore_errors,
    open_store,
)
from quire.fetch.source_credentials import store_options
from quire.fetch.sources.globs import path_filter
from quire.fetch.transfer.download import Remote, download

_VALID_FOR = timedelta(hours=1)


class BucketSource:
    """One object, or all objects below a prefix."""

    def __init__(self, url: str, options: SourceOptions) -> None:
        scheme, _, rest = url.partition("://")
        self._scheme = scheme.lower()
        self._bucket, _, self._key = rest.partition("/")
        if not self._bucket:
            raise BadInput(f"{url}: no bucket given. Write {self._scheme}://BUCKET/PREFIX.")
        self._options = options
        self._is_included = path_filter(options.include, options.exclude)
        self._store: Any = None

    def pages(self, after: str | None = None) -> Iterator[ListingPage]:
        """List in key order; the cursor is the last key."""
        is_folder = not self._key or self._key.endswith("/")
        if after is None and not is_folder and (alone := self._head(self._key)):
            yield ListingPage([self._item(alone, self._key)], self._key)
            return
        if after == self._key and after:
            return
        obstore = load_obstore()
        prefix = self._key.strip("/")
        with self._translate_errors():
            listing = obstore.list(
                self._client(), prefix or None, offset=after or None, chunk_size=PAGE_ITEMS
            )
            for found in listing:
                yield self._page([*found], prefix)

    def _page(self, found: list[Any], prefix: str) -> ListingPage:
        kept = [each for each in found if self._is_included(_below(each["path"], prefix))]
        # Cloud consoles create an empty object with a trailing slash for a folder; obstore lists
        # it without the slash, under a key that does not exist.
        empty = [each["path"] for each in kept if not each["size"]]
        markers = {key for key in empty if self._head(key) is None}
        url = f"{self._scheme}://{self._bucket}/"
        return ListingPage(
            [self._item(each, prefix) for each in kept if each["path"] not in markers],
            str(found[-1]["path"]),
            [Skipped(url + key, "a folder marker, not a file") for key in sorted(markers)],
        )

    def _head(self, key: str) -> Any | None:
        try:
            with self._translate_errors():
                return load_obstore().head(self._client(), key)
        except Gone:
            return None

    def fetch(self, item: Item, part: Path, progress: Progress, check: Check) -> Fetched:
        """Download the verified bytes to `part`."""
        key = item.uri.removeprefix(f"{self._scheme}://{self._bucket}/")
        remote = Remote(lambda: self._request(key), etag_is_md5=self._scheme == "s3")
        return download(remote, item, part, self._options, progress, check)

    def doctor(self) -> list[str]:
        """Say whether the bucket can be listed and read."""
        url = f"{self._scheme}://{self._bucket}/{self._key}"
        try:
            page = next(self.pages(), ListingPage([], ""))
            if page.items:
                self._request(page.items[0].uri.removeprefix(f"{self._scheme}://{self._bucket}/"))
        except QuireError as error:
            return [str(error)]
        count = f"{len(page.items):,}" + (" or more" if len(page.items) >= PAGE_ITEMS else "")
        return [f"{url}: can be listed; objects found: {count}."]

    def _item(self, found: Any, prefix: str) -> Item:
        key, etag = str(found["path"]), found["e_tag"]
        inside, _, _ = _below(key, prefix).rpartition("/")
        if etag and not etag.endswith('"'):
            etag = f'"{etag}"'  # as in headers: Azure lists it without quotes
        return Item(
            uri=f"{self._scheme}://{self._bucket}/{key}",
            name=safe_name(key.rpartition("/")[2]),
            size=int(found["size"]),
            mtime=found["last_modified"].timestamp(),
            etag=etag,
            version=found["version"],
            folder=printable_name(inside),
        )

    def _request(self, key: str) -> Request:
        obstore = load_obstore()
        # For Google, obstore puts the key into the URL unescaped.
        named = quote(key) if self._scheme == "gs" else key
        with self._translate_errors():
            url = str(obstore.sign(self._client(), "GET", named, _VALID_FOR))
        if self._scheme != "az":
            return Request(url)
        own = self._options.bucket_credentials
        return Request(fix_signature(url, environ=os.environ if own is None else own))

    def _client(self) -> Any:
        if self._store is None:
            if self._options.endpoint:
                require_allowed(self._options.endpoint, self._options)
            own = self._options.bucket_credentials
            credentials = {} if own is None else store_options(self._scheme, own)
            self._store = open_store(
                self._scheme,
                self._bucket,
                self._options.endpoint,
                timeout=60.0,
                retry_config={"max_retries": len(self._options.limits.delays)},
                **credentials,
            )
        return self._store

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except obstore_errors() as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> QuireError:
        url = f"{self._scheme}://{self._bucket}/{self._key}"
        why, check = first_line(error), CREDENTIAL_SOURCES[self._scheme]
        exceptions = load_obstore().exceptions
        if isinstance(
            error, (exceptions.InvalidPathError, exceptions.UnknownConfigurationKeyError)
        ):
            return SourceRefused(f"{url}: cannot be listed ({why}).")
        known = {
            "missing": Gone(f"{url}: not found ({why})."),
            "no bucket": Gone(f"{url}: the bucket does not exist. Check its name."),
            "no credentials": FetchFailed(f"{url}: no credentials found. Set {check}."),
            "denied": SourceRefused(f"{url}: access denied ({why}). Check {check}."),
            "failed": FetchFailed(
                f"{url}: cannot be reached ({why}). Check the network and {check}."
            ),
        }
        return known[classify(error)]


def _below(key: str, prefix: str) -> str:
    return key.removeprefix(prefix).lstrip("/") if prefix else key
