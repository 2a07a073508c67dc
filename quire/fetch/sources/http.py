"""One file at an HTTP URL as a source: a listing of one item."""

import base64
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from quire.errors import BadInput, QuireError
from quire.fetch.http_client import HttpClient, Request, Response, RetryableError, redact_url
from quire.fetch.items import Check, Fetched, Item, ListingPage, Progress, SourceOptions
from quire.fetch.names import safe_name
from quire.fetch.transfer import response_headers
from quire.fetch.transfer.download import Remote, download, failure
from quire.fetch.transfer.retry import RetryBudget

_LISTED = "listed"
_KEPT = "%/:?#[]@!$&'()*+,;=~-._"  # characters of a pasted URL that stay unescaped
_EXTENDED = re.compile(r"filename\*\s*=\s*([\w-]+)'[^']*'([^;\s]+)", re.IGNORECASE)
_QUOTED = re.compile(r'filename\s*=\s*"((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_BARE = re.compile(r"filename\s*=\s*([^;\s]+)", re.IGNORECASE)


class HttpSource:
    """One file at a URL."""

    def __init__(self, url: str, options: SourceOptions) -> None:
        self._url, self._headers = _without_password(url)
        self._options = options

    def pages(self, after: str | None = None) -> Iterator[ListingPage]:
        """List the one file, described by the response headers."""
        if after is None:
            yield ListingPage([self._describe(lambda: None)], _LISTED)

    def fetch(self, item: Item, part: Path, progress: Progress, check: Check) -> Fetched:
        """Download the verified bytes to `part`."""
        remote = Remote(lambda: Request(self._url, self._headers))
        return download(remote, item, part, self._options, progress, check)

    def doctor(self) -> list[str]:
        """Say whether the file can be read."""
        try:
            item = self._describe(lambda: None)
        except QuireError as error:
            return [str(error)]
        size = "of unknown size" if item.size is None else f"of {item.size:,} bytes"
        return [f"{redact_url(self._url)}: can be read; {item.name}, {size}."]

    def _describe(self, check: Check) -> Item:
        name = redact_url(self._url)
        retries = RetryBudget(name, self._options, check)
        # One byte, because some servers answer HEAD differently from GET.
        request = Request(self._url, {**self._headers, "Range": "bytes=0-0"})
        with closing(HttpClient(self._options, check)) as http:
            while True:
                try:
                    with http.request(request) as response:
                        if response.status not in (200, 206, 416):
                            raise failure(name, response.status, response.headers)
                        return _item(self._url, response)
                except RetryableError as error:
                    retries.wait(error)


def _item(url: str, response: Response) -> Item:
    headers = response.headers
    span = response_headers.span(headers)
    size = span.total if span else response_headers.length(headers)
    if response.status == 416:
        size = response_headers.total_of_unmet_range(headers)
    digests = response_headers.digests(headers, whole=response.status == 200)
    return Item(
        uri=url,
        name=_name(url, headers),
        size=size,
        mtime=response_headers.moment(headers.get("last-modified", "")),
        etag=headers.get("etag"),
        md5=digests.get("md5"),
        media_type=headers.get("content-type", "").partition(";")[0].strip().lower() or None,
        sha256=digests.get("sha256"),
    )


def _name(url: str, headers: dict[str, str]) -> str:
    """Return the name in Content-Disposition, else the last part of the URL."""
    disposition = headers.get("content-disposition", "")
    if found := _EXTENDED.search(disposition):
        try:
            return safe_name(unquote(found[2], encoding=found[1]))
        except LookupError:
            pass
    if found := _QUOTED.search(disposition):
        return safe_name(re.sub(r"\\(.)", r"\1", found[1]))
    if found := _BARE.search(disposition):
        return safe_name(found[1])
    parts = urlsplit(url)
    return safe_name(unquote(parts.path.rstrip("/").rpartition("/")[2]) or parts.netloc)


def _without_password(url: str) -> tuple[str, dict[str, str]]:
    """Split a URL into one that may be stored and the Authorization header of its user."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadInput(f"{url}: is not a URL ({error}).") from None
    if not host:
        raise BadInput(f"{url}: names no host.")
    try:
        host_part = f"[{host}]" if ":" in host else host.encode("idna").decode()
    except UnicodeError:
        raise BadInput(f"{url}: {host!r} is not a valid host name.") from None
    netloc = host_part if port is None else f"{host_part}:{port}"
    path, query = (quote(each, safe=_KEPT) for each in (parts.path or "/", parts.query))
    plain = urlunsplit((parts.scheme.lower(), netloc, path, query, ""))
    if parts.username is None:
        return plain, {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return plain, {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
