"""Scores passages for a query by a model that reads both: an endpoint with `POST {url}/rerank`.

Cohere, Jina, vLLM, LiteLLM, Infinity and llama.cpp have it. A search waits for the answer, so there
is one attempt; an endpoint that failed is not asked again for a while.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from quire.errors import BadInput, Permanent, QuireError, Transient
from quire.text.rerank.scores import MAX_CHARS, MAX_QUERY_CHARS, scaled
from quire.text.tokens import encodable

if TYPE_CHECKING:
    import httpx

#: Passages of a search that are scored.
MAX_TEXTS = 50
#: Seconds of one attempt, and until an endpoint that failed is asked again.
TIMEOUT, PAUSE = 5.0, 30.0
_MAX_ANSWER_BYTES = 4 << 20
#: Statuses that refuse one query, and say nothing about the next.
_OF_THE_QUERY = (400, 413, 422)


class Endpoint:
    """A model of an endpoint."""

    most = MAX_TEXTS

    def __init__(
        self,
        url: str,
        model: str,
        key: str = "",
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        import httpx

        self.name = model
        self._address = url.rstrip("/") + "/rerank"
        self._timeout, self._clock = timeout, clock
        self._asked_again_at = -math.inf
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Redirects are not followed: only the operator names who gets the texts and the key.
        self._client = httpx.Client(headers=headers, timeout=timeout, follow_redirects=False)

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return how relevant each text is, from 0 to 1; raise QuireError if that fails."""
        if (left := self._asked_again_at - self._clock()) > 0:
            raise Transient(
                f"reranker {self.name}: failed before and is asked again in {math.ceil(left)} s.",
                retry_after=left,
            )
        documents = [encodable(text[:MAX_CHARS]) for text in texts]
        body = {
            "model": self.name, "query": encodable(query[:MAX_QUERY_CHARS]),
            "documents": documents, "top_n": len(documents),
        }  # fmt: skip
        try:
            return self._parsed(self._send(body), len(documents))
        except BadInput:  # others may be answered
            raise
        except QuireError:
            self._asked_again_at = self._clock() + PAUSE
            raise

    def _send(self, body: dict[str, Any]) -> bytes:
        import httpx

        began = self._clock()
        try:
            with self._client.stream("POST", self._address, json=body) as response:
                content = self._read(response, began)
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise BadInput(f"reranker {self.name}: not a URL ({error}).") from None
        except httpx.TransportError as error:
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise Transient(f"reranker {self.name}: no answer ({reason}).") from None
        if response.status_code != 200:
            said = " ".join(content[:300].decode(errors="replace").split())
            hint = " Check QUIRE_RERANK_KEY." if response.status_code in (401, 403) else ""
            kind = BadInput if response.status_code in _OF_THE_QUERY else Permanent
            raise kind(
                f"reranker {self.name}: refused with status {response.status_code} ({said}).{hint}"
            )
        return content

    def _read(self, response: "httpx.Response", began: float) -> bytes:
        """Read a body that may be too long or come too slowly."""
        found = bytearray()
        for part in response.iter_bytes():
            found += part
            if len(found) > _MAX_ANSWER_BYTES:
                raise Permanent(f"reranker {self.name}: its answer is too long.")
            if self._clock() - began > self._timeout:
                raise Transient(f"reranker {self.name}: no answer in {self._timeout:g} s.")
        return bytes(found)

    def _parsed(self, content: bytes, size: int) -> list[float]:
        """Return the scores of an answer, in the order of the texts."""
        try:
            answer = json.loads(content)
            rows = answer["results"] if "results" in answer else answer["data"]
            found = {int(row["index"]): float(row["relevance_score"]) for row in rows}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise Permanent(
                f"reranker {self.name}: not an answer with scores ({reason})."
            ) from None
        if sorted(found) != list(range(size)) or not all(map(math.isfinite, found.values())):
            raise Permanent(
                f"reranker {self.name}: expected a score for each of {size} texts, got "
                f"{len(found)}."
            )
        return scaled([found[at] for at in range(size)])
