"""One file at an HTTP URL as a source: a listing of one item."""

import base64
import re
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from quire.clock import SystemClock
from quire.errors import BadInput, QuireError
from quire.fetch.http_client import HttpClient, Request, Response, RetryableError, redact_url
from quire.fetch.items import Check, Fetched, Item, ListingPage, Progress, SourceOptions
from quire.fetch.names import safe_name
from quire.fetch.transfer import response_headers
from quire.fetch.transfer.download import Remote, refusal, transfer
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
            yield ListingPage([self._described(lambda: None)], _LISTED)

    def fetch(self, item: Item, part: Path, progress: Progress, check: Check) -> Fetched:
        """Download the verified bytes to `part`."""
        remote = Remote(lambda: Request(self._url, self._headers))
        return transfer(remote, item, part, self._options, progress, check)

    def doctor(self) -> list[str]:
        """Say whether the file can be read."""
        try:
            item = self._described(lambda: None)
        except QuireError as error:
            return [str(error)]
        size = "of unknown size" if item.size is None else f"of {item.size:,} bytes"
        return [f"{redact_url(self._url)}: can be read; {item.name}, {size}."]

    def _described(self, check: Check) -> Item:
        retries = RetryBudget(redact_url(self._url), self._options, check)
        with HttpClient(self._options, check) as http:
            while True:
                try:
                    return self._asked(http)
                except RetryableError as error:
                    retries.wait(error)

    def _asked(self, http: HttpClient) -> Item:
        """Request one byte: some servers answer HEAD differently from GET."""
        request = Request(self._url, {**self._headers, "Range": "bytes=0-0"})
        with http.request(request) as answer:
            if answer.status >= 500 or answer.status in (408, 429):
                pause = response_headers.retry_after(answer.headers, SystemClock().now().wall)
                raise RetryableError(f"HTTP {answer.status} from the server", pause)
            if answer.status not in (200, 206, 416):
                raise refusal(redact_url(self._url), answer.status)
            return _item(self._url, answer)


def _item(url: str, answer: Response) -> Item:
    headers = answer.headers
    span = response_headers.span(headers)
    size = span.total if span else response_headers.length(headers)
    if answer.status == 416:
        size = response_headers.total_of_unmet_range(headers)
    digests = response_headers.digests(headers, whole=answer.status == 200)
    return Item(
        uri=url,
        name=_name(url, headers),
        size=size,
        mtime=_moment(headers.get("last-modified", "")),
        etag=headers.get("etag"),
        md5=digests.get("md5"),
        media_type=headers.get("content-type", "").partition(";")[0].strip().lower() or None,
        sha256=digests.get("sha256"),
    )


def _name(url: str, headers: dict[str, str]) -> str:
    """Return the name in Content-Disposition, else the last part of the URL."""
    said = headers.get("content-disposition", "")
    if found := _EXTENDED.search(said):
        try:
            return safe_name(unquote(found[2], encoding=found[1]))
        except LookupError:
            pass
    if found := _QUOTED.search(said):
        return safe_name(re.sub(r"\\(.)", r"\1", found[1]))
    if found := _BARE.search(said):
        return safe_name(found[1])
    parts = urlsplit(url)
    return safe_name(unquote(parts.path.rstrip("/").rpartition("/")[2]) or parts.netloc)


def _moment(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError):
        return None


def _without_password(url: str) -> tuple[str, dict[str, str]]:
    """Split a URL into one that may be stored and the Authorization header of its user."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadInput(f"{url}: is not a URL ({error}).") from None
    if not host:
        raise BadInput(f"{url}: names no host.")
    place = f"[{host}]" if ":" in host else _ascii_host(url, host)
    netloc = place if port is None else f"{place}:{port}"
    path, query = (quote(each, safe=_KEPT) for each in (parts.path or "/", parts.query))
    plain = urlunsplit((parts.scheme.lower(), netloc, path, query, ""))
    if parts.username is None:
        return plain, {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return plain, {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _ascii_host(url: str, host: str) -> str:
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        raise BadInput(f"{url}: {host!r} is not a valid host name.") from None
