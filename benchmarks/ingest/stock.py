"""Documents for searches to be measured on: many, the same every time, with subjects of their own.

A document is about a few subjects, each chunk more about one of them than about others, and a
subject has words and sentences of its own. The vector of a chunk is the mean of those of its
sentences, which is near to what an embedder would give, and takes no time. A graph of such vectors
misses as many neighbours as one of real English text (measured: docs/bench.md); sentences without
a subject are all alike, and no graph finds its way among them.
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

PAGES = 100  # of a document
CUTS = 3  # chunks of a page
CHUNKS = PAGES * CUTS  # of a document
_SENTENCES = 10  # of a chunk
_SUBJECTS = 1_000
_OWN = 32  # sentences of a subject
_ABOUT = 4  # subjects of a document
_MIXED = 0.5  # of a chunk's share of each subject: the lower, the more it keeps to one of them
_FAITHFUL = 0.85  # share of a document's sentences that are about its subjects


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
        subjects = [prose.subject() for _ in range(_SUBJECTS)]
        self.sentences = [prose.sentence(each) for each in subjects for _ in range(_OWN)]
        self._embedder = embedder

    def questions(self, count: int) -> list[str]:
        """Return a few words that follow each other in one of the sentences, for each question."""
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
        return [words.indexed_simple(each, "en").split() for each in self.sentences]

    def volume(self, number: int) -> Volume:
        """Make a document."""
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
        return Volume(f"bench:document-{number}", made)

    def _chunk(self, chosen: list[int], vector: bytes) -> Chunk:
        text = " ".join([self.sentences[at] for at in chosen])
        stems = [stem for at in chosen for stem in self._stems[at]]
        return Chunk(text_digest(text), text, stems, vector)

    def volumes(self, chunks: int) -> Iterator[Volume]:
        """Make documents of so many chunks together, or some more."""
        return map(self.volume, range(-(-chunks // CHUNKS)))
