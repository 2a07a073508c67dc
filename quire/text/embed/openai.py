"""An embedder behind HTTP: any endpoint that speaks OpenAI's `POST {url}/embeddings`.

Requests are bounded by texts and tokens, and paced together with the processes that name the same
file. What may pass later (429, 5xx, timeouts, a torn answer) is tried again with growing delays and
is then Transient; what will not is Permanent at once. Dimensions that nobody gave are those of the
first answer: all others must have them too.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.clock import SystemClock
from quire.errors import BadInput, Permanent, Transient
from quire.text.embed.rate_limit import Meanwhile, Pace, Patience
from quire.text.tokens import Estimate

if TYPE_CHECKING:
    import httpx
    import numpy as np
    from numpy.typing import NDArray

_LONGEST_DELAY = 60.0
#: A request is at most this part of a minute's tokens, so that nobody waits long for one.
_PART = 0.25
_PASSING = frozenset({408, 409, 425, 429})


@dataclass(frozen=True)
class EndpointOptions:
    """Where an endpoint is and what it allows."""

    url: str
    dimensions: int = 0  # as the model gives them
    key: str = field(default="", repr=False)
    batch: int = 64  # texts a request
    batch_tokens: int = 50_000  # estimated tokens a request
    requests_per_minute: float = 0
    tokens_per_minute: float = 0
    shared: Path | None = None  # file of those that keep these limits together
    timeout: float = 60.0
    attempts: int = 6
    send_dimensions: bool = False  # ask for shortened vectors, where the model can do that
    clock: Callable[[], float] = lambda: SystemClock().now().lease
    wait: Callable[[float], None] = time.sleep


@dataclass
class Usage:
    """What an endpoint was asked for since this process opened it."""

    requests: int = 0
    retries: int = 0
    texts: int = 0
    tokens: int = 0  # as the endpoint counts them


class _Again(Exception):
    """The request may pass later; `after` is the endpoint's own wish."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


class Endpoint:
    """Vectors of one model of an endpoint."""

    counter = Estimate()

    def __init__(self, model: str, options: EndpointOptions) -> None:
        import httpx

        if not model or not options.url:
            raise BadInput(
                f"embedder openai:{model}: a model and the URL of its endpoint are needed (got "
                f"{model!r} and {options.url!r}). Set QUIRE_EMBED_URL, and QUIRE_EMBED_API_KEY if "
                "it wants a key, where the workers and the API run."
            )
        self.model, self.options = model, options
        self.dimensions = options.dimensions
        self.name = (
            f"openai:{model}-{options.dimensions}" if options.dimensions else (f"openai:{model}")
        )
        self.usage = Usage()
        self.pace = Pace(
            options.requests_per_minute,
            options.tokens_per_minute,
            options.clock,
            options.shared,
            options.batch_tokens,
        )
        headers = {"Authorization": f"Bearer {options.key}"} if options.key else {}
        self._client = httpx.Client(headers=headers, timeout=options.timeout)
        self._address = options.url.rstrip("/") + "/embeddings"

    def embed(
        self, texts: Sequence[str], meanwhile: Meanwhile | None = None
    ) -> "NDArray[np.float32]":
        """Return one unit vector a text; that of an empty text is zero and is not asked for.

        With `meanwhile` it waits as long as the endpoint and its limits demand; without, it goes
        before those that do, and is Transient rather than late.
        """
        import numpy as np

        patience = self._patience(meanwhile)
        answers = [
            (numbers, self._ask([_clean(texts[n]) for n in numbers], tokens, patience))
            for numbers, tokens in self._batches(texts)
        ]
        found = np.zeros((len(texts), self.dimensions), np.float32)
        for numbers, rows in answers:
            found[numbers] = rows
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        np.divide(found, lengths, out=found, where=lengths > 0)
        return found

    def learn(self, meanwhile: Meanwhile | None = None) -> None:
        """Find out the dimensions, by one small request where no answer has told them yet."""
        if not self.dimensions:
            self._ask(["dimensions"], 1, self._patience(meanwhile))

    def count(self, text: str) -> int:
        """Estimate the tokens of a text on its own."""
        return self.counter.count(text)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _patience(self, meanwhile: Meanwhile | None) -> Patience:
        return Patience(self.name, self.options.wait, meanwhile)

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], int]]:
        """Yield the numbers of the texts of each request, and their tokens."""
        numbers: list[int] = []
        total = 0
        part = self.options.tokens_per_minute * _PART or self.options.batch_tokens
        most = min(self.options.batch_tokens, part)
        for number, text in enumerate(texts):
            if not text.strip():
                continue
            tokens = self.count(text)
            full = len(numbers) >= self.options.batch
            if numbers and (full or total + tokens > most):
                yield numbers, total
                numbers, total = [], 0
            numbers.append(number)
            total += tokens
        if numbers:
            yield numbers, total

    def _ask(self, texts: list[str], tokens: int, patience: Patience) -> "NDArray[np.float32]":
        for attempt in range(1, self.options.attempts + 1):
            try:
                patience.look()
                self.pace.enter(tokens, patience)
                return self._ask_once(texts)
            except _Again as again:
                delay = again.after or random.uniform(0.75, 1.25) * 2.0 ** (attempt - 1)  # noqa: S311
                delay = min(delay, _LONGEST_DELAY)
                if attempt == self.options.attempts:
                    raise Transient(
                        f"embedder {self.name}: no answer after {attempt} attempts ({again}). "
                        "It is tried again later.",
                        retry_after=delay,
                    ) from None
                self.usage.retries += 1
                patience.wait(delay, f"waits to ask again ({again})")
        raise AssertionError("not reached")

    def _ask_once(self, texts: list[str]) -> "NDArray[np.float32]":
        import httpx

        body: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": "float"}
        if self.options.send_dimensions:
            body["dimensions"] = self.dimensions
        self.usage.requests += 1
        try:
            answer = self._client.post(self._address, json=body)
        except httpx.UnsupportedProtocol as error:
            raise BadInput(f"embedder {self.name}: not a URL ({self._address}: {error}).") from None
        except httpx.TransportError as error:
            raise _Again(f"{type(error).__name__}: {error}") from None
        self._refuse(answer)
        return self._vectors(answer, len(texts))

    def _refuse(self, answer: "httpx.Response") -> None:
        """Raise what an answer other than 200 means."""
        status = answer.status_code
        if status == 200:
            return
        said = " ".join(answer.text[:300].split())
        if status in _PASSING or status >= 500:
            raise _Again(f"status {status}: {said}", _retry_after(answer.headers))
        hint = " Check its key." if status in (401, 403) else ""
        raise Permanent(f"embedder {self.name}: refused with status {status} ({said}).{hint}")

    def _vectors(self, answer: "httpx.Response", wanted: int) -> "NDArray[np.float32]":
        import numpy as np

        try:
            content = answer.json()
            rows = sorted(content["data"], key=lambda row: row.get("index", 0))
            vectors = [row["embedding"] for row in rows]
            sizes = {len(vector) for vector in vectors}
            used = int((content.get("usage") or {}).get("total_tokens") or 0)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _Again(f"not an embeddings answer: {type(error).__name__}: {error}") from None
        if len(vectors) != wanted:
            raise _Again(f"{len(vectors)} vectors for {wanted} texts")
        self._check_dimensions(sizes)
        try:
            with np.errstate(over="ignore"):  # it is found to be infinite below
                found = np.array(vectors, np.float32)
        except (ValueError, TypeError) as error:
            raise _Again(f"not an embeddings answer: {error}") from None
        if not np.isfinite(found).all():
            raise Permanent(f"embedder {self.name}: a vector has numbers that are not finite.")
        self.dimensions = found.shape[1]
        self.usage.texts += wanted
        self.usage.tokens += used
        return found

    def _check_dimensions(self, sizes: set[int]) -> None:
        wanted = {self.dimensions} if self.dimensions else sizes - {0}
        if sizes == wanted and len(sizes) == 1:
            return
        got = ", ".join(map(str, sorted(sizes)))
        raise Permanent(
            f"embedder {self.name}: vectors of other dimensions (expected "
            f"{self.dimensions or 'one number'}, got {got}). "
            "Give the other model a name of its own, or set QUIRE_EMBED_DIMENSIONS to what it has."
        )


def _clean(text: str) -> str:
    """Replace lone surrogates, which no request can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _retry_after(headers: "httpx.Headers") -> float:
    """Return the seconds an endpoint asks to wait, in either form of the header, or 0."""
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
