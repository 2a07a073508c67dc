"""The embedder that ships in a wheel: WordLlama's token vectors, summed by word.

Its vectors are means of token vectors, and its vocabulary has no token that spans a space, a digit
or both letters and punctuation. So a text falls apart into words that tokenise independently, and
a word met before is one row of a table: no tokeniser runs for it, and fewer rows are added up.
The library itself is not imported; it would configure logging, and may download.
"""

import importlib.metadata
import importlib.util
import os
import re
import threading
from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from quire.errors import BadInput, Permanent
from quire.text.tokens import UnitRuler

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

DIMENSIONS = (64, 128, 256)
_WEIGHTS = Path("weights", "l2_supercat_256.safetensors")
_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")
_SPACE = "▁"  # how the vocabulary writes a space
_SPECIAL = re.compile(r"(<s>|</s>|<unk>)")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_ROWS = 40_000  # words remembered: 40 MB when full, then it starts over
_BLOCK = 4_096  # words looked up at a time, so that a huge text needs no huge table
_LETTERS = 4_000_000  # of all words remembered


class WordLlama:
    """Token vectors of the wheel, and the words met so far."""

    def __init__(self, dimensions: int = 256) -> None:
        if dimensions not in DIMENSIONS:
            known = ", ".join(map(str, DIMENSIONS))
            raise BadInput(f"wordllama: no {dimensions} dimensions (expected one of {known}).")
        import numpy as np
        from safetensors import safe_open

        folder = _folder()
        self.dimensions = dimensions
        release = importlib.metadata.version("wordllama").split(".")
        self.name = f"wordllama-{dimensions}@{'.'.join(release[:2])}"
        self._tokenizer = _open_tokenizer(folder / _TOKENIZER)
        self._find = _word_pattern(self._tokenizer.get_vocab()).findall
        with safe_open(folder / _WEIGHTS, framework="np") as stored:
            self._weights = stored.get_tensor("embedding.weight")[:, :dimensions]
        self._vectors = np.empty((_ROWS, dimensions), np.float32)
        self._rows: dict[str, int] = {}
        self._sizes: list[int] = []
        self._letters = 0
        self._lock = threading.Lock()

    @property
    def counter(self) -> "WordLlama":
        """The tokeniser that cuts pages for this embedder."""
        return self

    def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return one unit vector a text; that of an empty text is zero."""
        import numpy as np

        found = np.zeros((len(texts), self.dimensions), np.float32)
        words = [self._words(text) for text in texts]
        with self._lock:
            unseen = set().union(*words).difference(self._rows)
            if len(unseen) + len(self._sizes) < _ROWS:
                self._learn(list(unseen))  # all texts at once: a call of the tokeniser is dear
            for number, some in enumerate(words):
                for first in range(0, len(some), _BLOCK):
                    rows = self._known(some[first : first + _BLOCK])
                    found[number] += self._vectors.take(rows, axis=0, mode="clip").sum(axis=0)
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        np.divide(found, lengths, out=found, where=lengths > 0)
        return found

    def count(self, text: str) -> int:
        """Count the tokens of a text on its own."""
        return sum(self._units(text)[1]) if text else 0

    def ruler(self, text: str) -> UnitRuler:
        """Count along a text."""
        lengths, counts = self._units(text)
        return UnitRuler(text, self.count, lengths, counts)

    def _units(self, text: str) -> tuple[list[int], list[int]]:
        """Cut the whole text into units: the characters and the tokens of each."""
        words = self._find(" " + text.replace(_SPACE, " "))
        counts: list[int] = []
        with self._lock:
            for first in range(0, len(words), _BLOCK):
                rows = self._known(words[first : first + _BLOCK])
                counts += map(self._sizes.__getitem__, rows)
        lengths = list(map(len, words))
        lengths[0] -= 1  # the space that every text begins with
        return lengths, counts

    def _words(self, text: str) -> list[str]:
        """Cut a text as the library reads it, where the names of special tokens are tokens."""
        text = text.replace(_SPACE, " ")
        if not text:
            return []
        if "<" not in text or not _SPECIAL.search(text):
            return self._find(" " + text)
        words: list[str] = []
        for part in filter(None, _SPECIAL.split(text)):
            words += [part] if _SPECIAL.fullmatch(part) else self._find(" " + part)
        return words

    def _known(self, words: list[str]) -> list[int]:
        """Return the row of each word, after learning those not met before."""
        try:
            return list(map(self._rows.__getitem__, words))
        except KeyError:
            if len(self._sizes) + len(words) > _ROWS or self._letters > _LETTERS:
                self._rows, self._sizes, self._letters = {}, [], 0
            self._learn([word for word in dict.fromkeys(words) if word not in self._rows])
            return list(map(self._rows.__getitem__, words))

    def _learn(self, words: list[str]) -> None:
        import numpy as np

        if not words:
            return
        # A lone surrogate has no UTF-8, and is read as the replacement character.
        readable = [w.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for w in words]
        encoded = self._tokenizer.encode_batch_fast(readable, add_special_tokens=False)
        tokens = [one.ids for one in encoded]
        sizes = list(map(len, tokens))
        first = len(self._sizes)
        flat = np.fromiter(chain.from_iterable(tokens), np.int64, sum(sizes))
        starts = np.cumsum([0, *sizes[:-1]])
        vectors = self._weights.take(flat, axis=0, mode="clip").astype(np.float32)
        self._vectors[first : first + len(words)] = np.add.reduceat(vectors, starts, axis=0)
        self._rows.update(zip(words, count(first)))
        self._sizes += sizes
        self._letters += sum(map(len, words))


def _folder() -> Path:
    """Find the installed wheel without importing it."""
    found = importlib.util.find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise Permanent(
            "embedder wordllama: not installed here (it has no wheel for this platform). "
            "Set an embedding endpoint, or the embedder none to search by text only."
        )
    return Path(found.submodule_search_locations[0])


def _open_tokenizer(path: Path) -> "Tokenizer":
    # Workers run one child a core: threads of the tokeniser would only be in each other's way.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer, normalizers

    tokenizer = Tokenizer.from_file(str(path))
    # The library's normaliser also puts a space before the text; here it is part of the words.
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    return tokenizer


def _word_pattern(vocabulary: Iterable[str]) -> re.Pattern[str]:
    """Return what finds the words: runs of characters that may share a token."""
    tokens = [t.lstrip(_SPACE) for t in vocabulary if not _BYTE.fullmatch(t)]
    tokens = [t for t in tokens if not _SPECIAL.fullmatch(t)]
    sharing = set("".join(t for t in tokens if len(t) > 1))
    sharing |= {t for t in tokens if len(t) == 1 and _SPACE + t in vocabulary}
    letters = {char for char in sharing if char.isalpha()}
    kinds = [letters, sharing - letters]
    if any(_SPACE in t or 0 < len(letters.intersection(t)) < len(set(t)) for t in tokens):
        kinds = [sharing]
    runs = ["".join(map(re.escape, sorted(kind))) for kind in kinds]
    choice = "|".join(f"[{run}]+" for run in runs)
    return re.compile(f" *(?:{choice})| +|[^{''.join(runs)} ]", re.DOTALL)
