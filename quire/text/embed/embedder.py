"""Opens embedders by name: `wordllama` (local), `openai:MODEL` (an endpoint) or `none`.

An embedder turns texts into unit vectors. Its `name` says everything that its vectors depend on
and is part of reuse keys: vectors of another name are never compared with its own.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from quire.errors import BadInput
from quire.text.tokens import Estimate, TokenCounter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from quire.text.embed.rate_limit import Meanwhile


class Embedder(Protocol):
    """What turns texts into vectors."""

    @property
    def name(self) -> str:
        """The model, its dimensions and its version, for reuse keys."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of a vector; 0 where there are none."""
        ...

    @property
    def counter(self) -> TokenCounter:
        """The tokeniser that cuts pages for this embedder."""
        ...

    def embed(
        self, texts: Sequence[str], meanwhile: "Meanwhile | None" = None
    ) -> "NDArray[np.float32]":
        """Return one unit vector a text; that of an empty text is zero.

        What may have to wait calls `meanwhile` about once a second; without, it does not wait long.
        """
        ...

    def count(self, text: str) -> int:
        """Count the tokens of a text on its own."""
        ...


class Without:
    """No vectors: pages are found by their words only."""

    name = "none"
    dimensions = 0
    counter = Estimate()

    def embed(
        self, texts: Sequence[str], meanwhile: "Meanwhile | None" = None
    ) -> "NDArray[np.float32]":
        """Return vectors of no dimensions."""
        import numpy as np

        return np.zeros((len(texts), 0), np.float32)

    def count(self, text: str) -> int:
        """Count the tokens of a text on its own."""
        return self.counter.count(text)


def open_embedder(name: str = "wordllama", **options: Any) -> Embedder:
    """Open an embedder, or return the one that this process opened by that name and options."""
    return _opened(name.strip(), tuple(sorted(options.items())))


@cache
def _opened(name: str, options: tuple[tuple[str, Any], ...]) -> Embedder:
    kind, _, model = name.partition(":")
    if kind == "none":
        return Without()
    if kind == "wordllama":
        from quire.text.embed.wordllama import WordLlama

        return WordLlama(**_only(name, options, {"dimensions"}))
    if kind == "openai":
        from quire.text.embed.openai import Endpoint, EndpointOptions

        fields = set(EndpointOptions.__dataclass_fields__)
        given: dict[str, Any] = {"url": ""} | _only(name, options, fields)
        return Endpoint(model, EndpointOptions(**given))
    raise BadInput(f"embedder {name!r}: not known (expected wordllama, openai:MODEL or none).")


def _only(name: str, options: tuple[tuple[str, Any], ...], known: set[str]) -> dict[str, Any]:
    unknown = sorted({key for key, _ in options} - known)
    if unknown:
        wanted = ", ".join(sorted(known))
        raise BadInput(f"embedder {name!r}: no option {unknown[0]!r} (expected {wanted}).")
    return dict(options)
