"""Documents for searches to be measured on: many, the same every time, with subjects of their own.

A document repeats some sentences of a stock more often than others, as a text about something
does. The vector of a chunk is the mean of those of its sentences, which is near to what an
embedder would give, and takes no time.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from quire.bench.ingest_prose import Prose
from quire.model.pipeline import text_digest
from quire.text import words
from quire.text.embed import Embedder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PAGES = 100  # of a document
CUTS = 3  # chunks of a page
CHUNKS = PAGES * CUTS  # of a document
_SENTENCES = 10  # of a chunk
_STOCK = 8_000  # sentences to choose from
_SUBJECT = 60  # sentences that a document is about
_FAITHFUL = 0.7  # share of a document's sentences that are of its subject


class Chunk(NamedTuple):
    """A text with its vector, and its words as each full-text index takes them."""

    digest: str
    text: str
    stems: list[str]
    vector: bytes


class Volume(NamedTuple):
    """A document: `CUTS` chunks to a page."""

    uri: str
    chunks: list[Chunk]


class Library:
    """Makes documents; the same number gives the same."""

    def __init__(self, embedder: Embedder) -> None:
        prose = Prose(23)
        self.sentences = [prose.sentence() for _ in range(_STOCK)]
        self._embedder = embedder

    @cached_property
    def _points(self) -> "npt.NDArray[np.float32]":
        return self._embedder.embed(self.sentences)

    @cached_property
    def _stems(self) -> list[list[str]]:
        return [words.indexed_simple(each, "en").split() for each in self.sentences]

    def volume(self, number: int) -> Volume:
        """Make a document."""
        import numpy as np

        dice = np.random.default_rng(number)
        subject = dice.choice(_STOCK, _SUBJECT, replace=False)
        size = CHUNKS, _SENTENCES
        is_faithful = dice.random(size) < _FAITHFUL
        other = dice.integers(_STOCK, size=size)
        chosen = np.where(is_faithful, dice.choice(subject, size), other)
        points = self._points[chosen].mean(axis=1)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        made = [
            self._chunk(line, point.tobytes())
            for line, point in zip(chosen.tolist(), points, strict=True)
        ]
        return Volume(f"bench:document-{number}", made)

    def _chunk(self, chosen: list[int], vector: bytes) -> Chunk:
        text = " ".join([self.sentences[at] for at in chosen])
        stems = [stem for at in chosen for stem in self._stems[at]]
        return Chunk(text_digest(text), text, stems, vector)

    def volumes(self, chunks: int) -> Iterator[Volume]:
        """Make documents of so many chunks together, or some more."""
        return map(self.volume, range(-(-chunks // CHUNKS)))
