"""The embedder that ships in a wheel: WordLlama's token vectors, summed up.

Its vectors are means of token vectors, and its vocabulary has no token that spans a space, a digit
or both letters and punctuation. So a text falls apart into words that tokenise independently, and
the tokens of a word met before are looked up: no tokeniser runs for it.
The library itself is not imported; it would configure logging, and may download.
"""

import importlib.metadata
import importlib.util
import re
import threading
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quire.errors import BadInput, Permanent
from quire.text.tokens import UnitRuler

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from quire.text.embed.rate_limit import Meanwhile

DIMENSIONS = (64, 128, 256)
_WEIGHTS = Path("weights", "l2_supercat_256.safetensors")
_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")
_SPACE = "▁"  # how the vocabulary writes a space
_SPECIAL = re.compile(r"(<s>|</s>|<unk>)")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_WORDS = 100_000  # remembered: some 30 MB when full, then it starts over
_BLOCK = 4_096  # tokens looked up at a time, so that a huge text needs no huge table
_LETTERS = 4_000_000  # of all words remembered
_SIZE = array("q").itemsize


class WordLlama:
    """Token vectors of the wheel, and the words met so far."""

    def __init__(self, dimensions: int = 256) -> None:
        if dimensions not in DIMENSIONS:
            known = ", ".join(map(str, DIMENSIONS))
            raise BadInput(f"wordllama: no {dimensions} dimensions (expected one of {known}).")
        import numpy as np
        from safetensors import safe_open
        from tokenizers import Tokenizer

        folder = _folder()
        self.dimensions = dimensions
        release = importlib.metadata.version("wordllama").split(".")
        self.name = f"wordllama-{dimensions}@{'.'.join(release[:2])}"
        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        self._known = _Tokens(tokenizer)
        self._find = _word_pattern(tokenizer.get_vocab()).findall
        with safe_open(folder / _WEIGHTS, framework="np") as stored:
            weights = stored.get_tensor("embedding.weight")[:, :dimensions]
        # Stored in half the precision: to widen rows at each use would take most of the time.
        self._weights = weights.astype(np.float32)
        self._lock = threading.Lock()

    @property
    def counter(self) -> "WordLlama":
        """The tokeniser that cuts pages for this embedder."""
        return self

    def embed(
        self, texts: Sequence[str], meanwhile: "Meanwhile | None" = None
    ) -> "NDArray[np.float32]":
        """Return one unit vector a text; that of an empty text is zero."""
        import numpy as np

        found = np.zeros((len(texts), self.dimensions), np.float32)
        with self._lock:
            for number, text in enumerate(texts):
                packed = b"".join(map(self._known.__getitem__, self._words(text)))
                tokens = np.frombuffer(packed, np.int64)
                for first in range(0, len(tokens), _BLOCK):
                    rows = tokens[first : first + _BLOCK]
                    found[number] += self._weights.take(rows, axis=0, mode="clip").sum(axis=0)
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
        with self._lock:
            counts = [len(self._known[word]) // _SIZE for word in words]
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


class _Tokens(dict[str, bytes]):
    """The tokens of each word met so far, as the bytes of an array: to be joined and looked up.

    A word not met before is tokenised by the bare model: the whole tokeniser takes twice as long,
    for what a single word has no need of.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        super().__init__()
        self._tokenize = tokenizer.model.tokenize
        names = tokenizer.get_added_tokens_decoder()
        self._special = {token.content: number for number, token in names.items()}
        self._letters = 0

    def __missing__(self, word: str) -> bytes:
        if len(self) >= _WORDS or self._letters > _LETTERS:
            self.clear()
            self._letters = 0
        self._letters += len(word)
        self[word] = packed = array("q", self._numbers(word)).tobytes()
        return packed

    def _numbers(self, word: str) -> list[int]:
        if word in self._special:
            return [self._special[word]]
        written = word.replace(" ", _SPACE)
        try:
            return [token.id for token in self._tokenize(written)]
        except UnicodeEncodeError:  # a lone surrogate has no UTF-8
            clean = written.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return [token.id for token in self._tokenize(clean)]


def _folder() -> Path:
    """Find the installed wheel without importing it."""
    found = importlib.util.find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise Permanent(
            "embedder wordllama: not installed here (it has no wheel for this platform). "
            "Set an embedding endpoint, or the embedder none to search by text only."
        )
    return Path(found.submodule_search_locations[0])


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
