"""Embeddings from any endpoint that implements OpenAI's `POST {url}/embeddings`.

Requests are bounded by texts and tokens, and rate-limited together with other processes. Temporary
failures (429, 5xx, timeouts, incomplete responses) are retried with growing delays and then raise
Transient; all others raise Permanent at once. If the dimensions are not set, those of the first
response apply to all.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING

from quire.clock import SystemClock
from quire.errors import BadInput, Permanent, Transient
from quire.text.embed.rate_limit import OnWait, RateLimiter, Waiter
from quire.text.tokens import encodable, estimate

if TYPE_CHECKING:
    import httpx
    import numpy as np
    from numpy.typing import NDArray

_MAX_DELAY = 60.0
#: Largest share of a minute's tokens in one request, so that others do not wait long for it.
_MAX_SHARE = 0.25
_TEMPORARY = frozenset({408, 409, 425, 429})


@dataclass(frozen=True)
class OpenAIOptions:
    """The endpoint and its limits."""

    url: str = ""
    dimensions: int = 0  # 0: as the model returns
    key: str = field(default="", repr=False)
    batch: int = 64  # texts per request
    batch_tokens: int = 50_000  # estimated tokens per request
    requests_per_minute: float = 0
    tokens_per_minute: float = 0
    shared: Path | None = None  # file through which processes share the rate limits
    timeout: float = 60.0
    attempts: int = 6
    clock: Callable[[], float] = lambda: SystemClock().now().lease
    wait: Callable[[float], None] = time.sleep


class _Retry(Exception):
    """A temporary failure; `after` is the endpoint's Retry-After in seconds, or 0."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


class OpenAIEmbedder:
    """One model of an endpoint."""

    def __init__(self, model: str, options: OpenAIOptions) -> None:
        import httpx

        if not model or not options.url:
            raise BadInput(
                f"embedder openai:{model}: needs a model and the URL of its endpoint (got "
                f"{model!r} and {options.url!r}). Set QUIRE_EMBED_URL, and QUIRE_EMBED_API_KEY if "
                "the endpoint requires a key, for the workers and the API."
            )
        self.model, self.options = model, options
        self.dimensions = options.dimensions
        self.name = f"openai:{model}" + (f"-{options.dimensions}" if options.dimensions else "")
        self.rate_limiter = RateLimiter(
            options.requests_per_minute,
            options.tokens_per_minute,
            options.clock,
            options.shared,
            options.batch_tokens,
        )
        headers = {"Authorization": f"Bearer {options.key}"} if options.key else {}
        self._client = httpx.Client(headers=headers, timeout=options.timeout)
        self._address = options.url.rstrip("/") + "/embeddings"

    def embed(self, texts: Sequence[str], on_wait: OnWait | None = None) -> "NDArray[np.float32]":
        """Return one unit vector per text; an empty text is not sent and gets a zero vector.

        With `on_wait` it waits as long as the endpoint and its limits require. Without, it goes
        ahead of those that wait, and raises Transient rather than wait long.
        """
        import numpy as np

        waiter = self._waiter(on_wait)
        responses = [
            (numbers, self._request([encodable(texts[n]) for n in numbers], tokens, waiter))
            for numbers, tokens in self._batches(texts)
        ]
        found = np.zeros((len(texts), self.dimensions), np.float32)
        for numbers, rows in responses:
            found[numbers] = rows
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        np.divide(found, lengths, out=found, where=lengths > 0)
        return found

    def detect_dimensions(self, on_wait: OnWait | None = None) -> None:
        """Learn the dimensions with one small request, unless they are known."""
        if not self.dimensions:
            self._request(["dimensions"], 1, self._waiter(on_wait))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _waiter(self, on_wait: OnWait | None) -> Waiter:
        return Waiter(self.name, self.options.wait, on_wait)

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], int]]:
        """Yield the indexes of the texts of each request, and their estimated tokens."""
        numbers: list[int] = []
        total = 0
        part = self.options.tokens_per_minute * _MAX_SHARE or self.options.batch_tokens
        most = min(self.options.batch_tokens, part)
        for number, text in enumerate(texts):
            if not text.strip():
                continue
            tokens = estimate(text)
            full = len(numbers) >= self.options.batch
            if numbers and (full or total + tokens > most):
                yield numbers, total
                numbers, total = [], 0
            numbers.append(number)
            total += tokens
        if numbers:
            yield numbers, total

    def _request(self, texts: list[str], tokens: int, waiter: Waiter) -> "NDArray[np.float32]":
        for attempt in range(1, self.options.attempts + 1):
            try:
                waiter.report()
                self.rate_limiter.acquire(tokens, waiter)
                return self._send(texts)
            except _Retry as retry:
                delay = retry.after or random.uniform(0.75, 1.25) * 2.0 ** (attempt - 1)  # noqa: S311
                delay = min(delay, _MAX_DELAY)
                if attempt == self.options.attempts:
                    raise Transient(
                        f"embedder {self.name}: no usable response after {attempt} attempts "
                        f"({retry}).",
                        retry_after=delay,
                    ) from None
                waiter.wait(delay, f"waits to retry ({retry})")
        raise AssertionError("not reached")

    def _send(self, texts: list[str]) -> "NDArray[np.float32]":
        import httpx

        body = {"model": self.model, "input": texts, "encoding_format": "float"}
        try:
            response = self._client.post(self._address, json=body)
        except httpx.UnsupportedProtocol as error:
            raise BadInput(f"embedder {self.name}: not a URL ({self._address}: {error}).") from None
        except httpx.TransportError as error:
            raise _Retry(f"{type(error).__name__}: {error}") from None
        if response.status_code == 200:
            return self._vectors(response, len(texts))
        status, text = response.status_code, " ".join(response.text[:300].split())
        if status in _TEMPORARY or status >= 500:
            raise _Retry(f"status {status}: {text}", _retry_after(response.headers))
        hint = " Check its key." if status in (401, 403) else ""
        raise Permanent(f"embedder {self.name}: refused with status {status} ({text}).{hint}")

    def _vectors(self, response: "httpx.Response", wanted: int) -> "NDArray[np.float32]":
        import numpy as np

        try:
            rows = sorted(response.json()["data"], key=lambda row: row.get("index", 0))
            vectors = [row["embedding"] for row in rows]
            sizes = {len(vector) for vector in vectors}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _Retry(f"not an embeddings response: {type(error).__name__}: {error}") from None
        if len(vectors) != wanted:
            raise _Retry(f"{len(vectors)} vectors for {wanted} texts")
        expected = {self.dimensions} if self.dimensions else sizes - {0}
        if sizes != expected or len(sizes) != 1:
            got = ", ".join(map(str, sorted(sizes)))
            raise Permanent(
                f"embedder {self.name}: unexpected dimensions (expected "
                f"{self.dimensions or 'one number'}, got {got}). "
                "Use another name for another model, or set QUIRE_EMBED_DIMENSIONS to the model's."
            )
        try:
            with np.errstate(over="ignore"):  # infinite values are rejected below
                found = np.array(vectors, np.float32)
        except (ValueError, TypeError) as error:
            raise _Retry(f"not an embeddings response: {error}") from None
        if not np.isfinite(found).all():
            raise Permanent(f"embedder {self.name}: a vector contains values that are not finite.")
        self.dimensions = found.shape[1]
        return found


def _retry_after(headers: "httpx.Headers") -> float:
    """Return the seconds of the Retry-After header, in either of its forms, or 0."""
    value = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        until, sent = parsedate_to_datetime(value), parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - sent).total_seconds())
    except (ValueError, TypeError):
        return 0.0
