"""Generates many documents to search in, the same every time, with realistic vectors.

A document is about a few subjects, and each chunk mostly about one of them; a subject has its own
words and sentences. A chunk's vector is the mean of its sentences' vectors, which is close to what
the embedder returns, and fast. An HNSW graph of these vectors misses as many neighbours as one of
real English text (docs/bench.md); sentences without a subject would all be alike.
"""

import random
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.ingest.prose import Prose
from quire.model.pipeline import text_digest
from quire.text import words
from quire.text.embed.embedder import Embedder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PAGES = 100  # in a document
CHUNKS_PER_PAGE = 3
CHUNKS = PAGES * CHUNKS_PER_PAGE  # in a document
_SENTENCES = 10  # in a chunk
_SUBJECTS = 1_000
_OWN = 32  # sentences for each subject
_ABOUT = 4  # subjects for each document
_MIXED = 0.5  # Dirichlet parameter of a chunk's subjects: the lower, the more it has just one
_FAITHFUL = 0.85  # share of a document's sentences that are about its subjects


class Chunk(NamedTuple):
    """A text with its vector, and its stems for the full-text index."""

    digest: str
    text: str
    stems: list[str]
    vector: bytes


class SyntheticDocument(NamedTuple):
    """A document with `CHUNKS_PER_PAGE` chunks on each page."""

    uri: str
    chunks: list[Chunk]


class Generator:
    """Generates documents, each determined by its number."""

    def __init__(self, embedder: Embedder) -> None:
        prose = Prose(23)
        subjects = [prose.subject() for _ in range(_SUBJECTS)]
        self.sentences = [prose.sentence(each) for each in subjects for _ in range(_OWN)]
        self._embedder = embedder

    def queries(self, count: int) -> list[str]:
        """Return queries: a few consecutive words of one of the sentences each."""
        dice = random.Random(2)  # noqa: S311
        found = []
        for _ in range(count):
            words, length = dice.choice(self.sentences).split(), dice.randint(2, 6)
            begin = dice.randrange(len(words) - length)
            found.append(" ".join(words[begin : begin + length]))
        return found

    @cached_property
    def _points(self) -> "npt.NDArray[np.float32]":
        return self._embedder.embed(self.sentences)

    @cached_property
    def _stems(self) -> list[list[str]]:
        return [words.tsvector_input(each, "en").split() for each in self.sentences]

    def document(self, number: int) -> SyntheticDocument:
        """Generate a document."""
        import numpy as np

        dice = np.random.default_rng(number)
        size = CHUNKS, _SENTENCES
        about = dice.choice(_SUBJECTS, _ABOUT, replace=False)
        shares = dice.dirichlet([_MIXED] * _ABOUT, CHUNKS).cumsum(axis=1)[:, :-1]
        subject = about[(dice.random((*size, 1)) > shares[:, None]).sum(axis=2)]
        is_faithful = dice.random(size) < _FAITHFUL
        subject = np.where(is_faithful, subject, dice.integers(_SUBJECTS, size=size))
        chosen = subject * _OWN + dice.integers(_OWN, size=size)
        points = self._points[chosen].mean(axis=1)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        made = [
            self._chunk(line, point.tobytes())
            for line, point in zip(chosen.tolist(), points, strict=True)
        ]
        return SyntheticDocument(f"bench:document-{number}", made)

    def _chunk(self, chosen: list[int], vector: bytes) -> Chunk:
        text = " ".join([self.sentences[at] for at in chosen])
        stems = [stem for at in chosen for stem in self._stems[at]]
        return Chunk(text_digest(text), text, stems, vector)

    def documents(self, chunks: int) -> Iterator[SyntheticDocument]:
        """Generate documents with at least this many chunks in total."""
        return map(self.document, range(-(-chunks // CHUNKS)))
