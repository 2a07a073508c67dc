"""WordLlama, the local embedder: the mean of the vectors of a text's tokens.

No token of its vocabulary spans a space, a digit, or both letters and punctuation, so the words of
a text are tokenized independently and their tokens can be cached: the tokenizer runs once per
distinct word. The library itself is not imported: it configures logging and may download files.
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
from quire.text.tokens import encodable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from quire.text.embed.rate_limit import OnWait

DIMENSIONS = (64, 128, 256)
_WEIGHTS = Path("weights", "l2_supercat_256.safetensors")
_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")
_SPACE = "▁"  # the vocabulary's sign for a space
_SPECIAL = re.compile(r"(<s>|</s>|<unk>)")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_MAX_CACHED_WORDS = 100_000  # about 30 MB; the cache is then cleared
_BLOCK = 4_096  # tokens per lookup: bounds the memory for a huge text
_MAX_CACHED_CHARS = 4_000_000
#: The weights are stored as float16. Converting all takes longer than those of a few texts; for
#: many texts, converting rows at each use would take most of the time.
_FEW_USES = 16


class WordLlama:
    """The token vectors of the wheel, and a cache of tokenized words."""

    def __init__(self, dimensions: int = 256) -> None:
        if dimensions not in DIMENSIONS:
            known = ", ".join(map(str, DIMENSIONS))
            raise BadInput(f"wordllama: no {dimensions} dimensions (expected one of {known}).")
        from safetensors import safe_open
        from tokenizers import Tokenizer

        folder = _folder()
        self.dimensions = dimensions
        release = importlib.metadata.version("wordllama").split(".")
        self.name = f"wordllama-{dimensions}@{'.'.join(release[:2])}"
        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        self._tokens = _TokenCache(tokenizer)
        self._find = _word_pattern(tokenizer.get_vocab()).findall
        with safe_open(folder / _WEIGHTS, framework="np") as stored:
            self._weights = stored.get_tensor("embedding.weight")[:, :dimensions]
        self._uses = 0
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], on_wait: "OnWait | None" = None) -> "NDArray[np.float32]":
        """Return one unit vector per text; an empty text gets a zero vector."""
        import numpy as np

        found = np.zeros((len(texts), self.dimensions), np.float32)
        with self._lock:
            self._uses += len(texts)
            if self._uses > _FEW_USES and self._weights.dtype != np.float32:
                self._weights = self._weights.astype(np.float32)
            for number, text in enumerate(texts):
                packed = b"".join(map(self._tokens.__getitem__, self._words(text)))
                tokens = np.frombuffer(packed, np.int64)
                for first in range(0, len(tokens), _BLOCK):
                    rows = tokens[first : first + _BLOCK]
                    taken = self._weights.take(rows, axis=0, mode="clip")
                    found[number] += taken.astype(np.float32, copy=False).sum(axis=0)
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        np.divide(found, lengths, out=found, where=lengths > 0)
        return found

    def _words(self, text: str) -> list[str]:
        """Split a text as the library does, which reads names of special tokens as tokens."""
        text = text.replace(_SPACE, " ")
        if not text:
            return []
        if "<" not in text or not _SPECIAL.search(text):
            return self._find(" " + text)
        words: list[str] = []
        for part in filter(None, _SPECIAL.split(text)):
            words += [part] if _SPECIAL.fullmatch(part) else self._find(" " + part)
        return words


class _TokenCache(dict[str, bytes]):
    """Maps words to their tokens, as the bytes of an int64 array that can be joined.

    A new word is tokenized by the bare model: the whole tokenizer takes twice as long for steps
    that a single word does not need.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        super().__init__()
        self._tokenize = tokenizer.model.tokenize
        names = tokenizer.get_added_tokens_decoder()
        self._special = {token.content: number for number, token in names.items()}
        self._chars = 0

    def __missing__(self, word: str) -> bytes:
        if len(self) >= _MAX_CACHED_WORDS or self._chars > _MAX_CACHED_CHARS:
            self.clear()
            self._chars = 0
        self._chars += len(word)
        if word in self._special:
            ids = [self._special[word]]
        else:
            ids = [token.id for token in self._tokenize(encodable(word.replace(" ", _SPACE)))]
        self[word] = packed = array("q", ids).tobytes()
        return packed


def _folder() -> Path:
    """Return the folder of the installed wheel without importing it."""
    found = importlib.util.find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise Permanent(
            "embedder wordllama: not installed (there is no wheel for this platform). "
            "Set an embedding endpoint, or embedder=none for full-text search only."
        )
    return Path(found.submodule_search_locations[0])


def _word_pattern(vocabulary: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of words: runs of characters that can be in one token."""
    tokens = [t.lstrip(_SPACE) for t in vocabulary if t[0] != "<" or not _BYTE.fullmatch(t)]
    tokens = [t for t in tokens if t[:1] != "<" or not _SPECIAL.fullmatch(t)]
    sharing = set("".join(t for t in tokens if len(t) > 1))
    sharing |= {t for t in tokens if len(t) == 1 and _SPACE + t in vocabulary}
    letters = {char for char in sharing if char.isalpha()}
    kinds = [letters, sharing - letters]
    mixed = [t for t in tokens if len(t) > 1 and not t.isalpha()]
    if any(_SPACE in t or 0 < len(letters.intersection(t)) < len(set(t)) for t in mixed):
        kinds = [sharing]
    runs = ["".join(map(re.escape, sorted(kind))) for kind in kinds]
    choice = "|".join(f"[{run}]+" for run in runs)
    return re.compile(f" *(?:{choice})| +|[^{''.join(runs)} ]", re.DOTALL)
