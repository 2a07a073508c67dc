"""The Embedder protocol, and opening embedders by name: `wordllama`, `openai:MODEL` or `none`.

An embedder turns texts into unit vectors. Its `name` identifies everything that its vectors depend
on and is part of reuse keys: vectors of different names are never compared.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from quire.errors import BadInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from quire.text.embed.rate_limit import OnWait


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def name(self) -> str:
        """Model, dimensions and version; part of reuse keys."""

    @property
    def dimensions(self) -> int:
        """The length of a vector; 0 if there are none."""

    def embed(self, texts: Sequence[str], on_wait: "OnWait | None" = None) -> "NDArray[np.float32]":
        """Return one unit vector per text; an empty text gets a zero vector.

        An embedder that may have to wait calls `on_wait` several times a second; without it, the
        call fails rather than wait long.
        """


class NoEmbedder:
    """No vectors: full-text search only."""

    name = "none"
    dimensions = 0

    def embed(self, texts: Sequence[str], on_wait: "OnWait | None" = None) -> "NDArray[np.float32]":
        """Return vectors of no dimensions."""
        import numpy as np

        return np.zeros((len(texts), 0), np.float32)


def open_embedder(name: str = "wordllama", **options: Any) -> Embedder:
    """Open an embedder; the same name and options return the same object."""
    return _opened(name.strip(), tuple(sorted(options.items())))


@cache
def _opened(name: str, options: tuple[tuple[str, Any], ...]) -> Embedder:
    kind, _, model = name.partition(":")
    if kind == "none":
        return NoEmbedder()
    if kind == "wordllama":
        from quire.text.embed.wordllama import WordLlama

        return WordLlama(**dict(options))
    if kind == "openai":
        from quire.text.embed.openai import OpenAIEmbedder, OpenAIOptions

        return OpenAIEmbedder(model, OpenAIOptions(**dict(options)))
    raise BadInput(f"embedder {name!r}: unknown (expected wordllama, openai:MODEL or none).")
