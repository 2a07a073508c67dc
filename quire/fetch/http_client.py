"""HTTP client of all remote sources: one request with its redirects.

The body is streamed undecoded. A redirect to another host drops the credentials.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urljoin, urlsplit

import httpcore

from quire.errors import SourceRefused
from quire.fetch.items import Check, SourceOptions
from quire.fetch.network import Deadline, GuardedBackend

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "x-goog-drive-resource-keys"})
_MAX_ERROR_BYTES = 64 << 10


class RetryableError(Exception):
    """A request failed in a way that a retry may fix."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "GET"


@dataclass(slots=True)
class Response:
    """Status, headers and streamed body of a response."""

    status: int
    headers: dict[str, str]
    pieces: Iterator[bytes]
    url: str

    def text(self) -> str:
        """Return the beginning of the body, to explain an error."""
        got = b""
        for piece in self.pieces:
            got += piece
            if len(got) >= _MAX_ERROR_BYTES:
                break
        return got[:_MAX_ERROR_BYTES].decode("utf-8", "replace")


class HttpClient:
    """A connection pool for one transfer."""

    def __init__(self, options: SourceOptions, check: Check) -> None:
        self.deadline = Deadline(check, options.clock)
        self._limits = options.limits
        backend = GuardedBackend(self.deadline, options)
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl_context(), network_backend=backend, keepalive_expiry=30
        )

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    @contextmanager
    def request(self, request: Request) -> Iterator[Response]:
        """Send a request, follow its redirects and yield the response."""
        self.deadline.begin(self._limits.chunk_seconds)
        with _translate_errors(request.url):
            for _ in range(self._limits.redirects + 1):
                with self._once(request) as response:
                    if response.status not in _REDIRECTS or "location" not in response.headers:
                        yield response
                        return
                    request = _follow_redirect(request, response.headers["location"])
        raise SourceRefused(
            f"{redact_url(request.url)}: more than {self._limits.redirects} redirects. "
            "Use the final address."
        )

    @contextmanager
    def _once(self, request: Request) -> Iterator[Response]:
        asked = {"User-Agent": "quire", "Accept-Encoding": "identity", **request.headers}
        timeouts = {"connect": 30.0, "pool": 30.0}
        # Split here: httpcore's own parser drops everything after a semicolon.
        parts = urlsplit(request.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.hostname or ""
        with self._pool.stream(
            request.method,
            httpcore.URL(scheme=parts.scheme, host=host, port=parts.port, target=target),
            headers=list(asked.items()),
            extensions={"timeout": timeouts},
        ) as response:
            found = {
                key.decode("latin-1").lower(): value.decode("latin-1")
                for key, value in response.headers
            }
            yield Response(response.status, found, response.iter_stream(), request.url)


@contextmanager
def _translate_errors(url: str) -> Iterator[None]:
    try:
        yield
    except httpcore.TimeoutException as error:
        raise RetryableError(str(error) or "the server did not respond in time") from error
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        cause = error.__cause__ or error.__context__
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise SourceRefused(
                f"{redact_url(url)}: the server's certificate is not trusted "
                f"({cause.verify_message}). Add its CA with SSL_CERT_FILE."
            ) from error
        raise RetryableError(
            f"the connection failed ({str(error) or type(error).__name__})"
        ) from error
    except httpcore.UnsupportedProtocol as error:
        raise SourceRefused(f"{redact_url(url)}: only http and https can be fetched.") from error


def _follow_redirect(request: Request, location: str) -> Request:
    url = urljoin(request.url, location)
    before, after = urlsplit(request.url), urlsplit(url)
    if after.scheme not in ("http", "https"):
        raise SourceRefused(
            f"{redact_url(request.url)}: redirects to {after.scheme}:, only http and https are "
            "followed."
        )
    if before.scheme == "https" and after.scheme == "http":
        raise SourceRefused(
            f"{redact_url(request.url)}: redirects from https to http, which is not followed. "
            "Use the final address."
        )
    headers = request.headers
    if (before.scheme, before.netloc) != (after.scheme, after.netloc):
        headers = {k: v for k, v in headers.items() if k.lower() not in _CREDENTIAL_HEADERS}
    return Request(url, headers, request.method)


def redact_url(url: str) -> str:
    """Return a URL without its query and password, which may be secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@cache
def ssl_context() -> ssl.SSLContext:
    """Trust the system's CAs and those of certifi."""
    context = ssl.create_default_context()
    if not os.environ.get("SSL_CERT_FILE"):
        import certifi

        context.load_verify_locations(certifi.where())
    return context
