"""The Reranker protocol, and opening the reranker that the settings name."""

import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol


class Reranker(Protocol):
    """Scores passages for a query."""

    @property
    def name(self) -> str:
        """The model."""

    @property
    def most(self) -> int:
        """Number of passages of a search that it scores."""

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return how relevant each text is, from 0 to 1; raise QuireError if that fails."""


_lock = threading.Lock()


def open_reranker(url: str, model: str, key: str = "") -> Reranker | None:
    """Open the model of an endpoint or of a folder, once a process; None if none is set."""
    if not model:
        return None
    with _lock:  # a model of a folder takes seconds to open
        return _opened(url, model, key)


@cache
def _opened(url: str, model: str, key: str) -> Reranker:
    if url:
        from quire.text.rerank.endpoint import Endpoint

        return Endpoint(url, model, key)
    from quire.text.rerank.cross_encoder import CrossEncoder

    return CrossEncoder(Path(model))
