"""Scores passages by a cross-encoder on this machine: an ONNX model and its tokenizer in a folder.

The folder is as Hugging Face has it: `tokenizer.json` beside `model.onnx`, or that in `onnx/`.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.errors import BadInput, Permanent, install_hint
from quire.text.rerank.scores import MAX_CHARS, MAX_QUERY_CHARS, logistic
from quire.text.tokens import encodable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODELS = ("model.onnx", "onnx/model.onnx", "model_quantized.onnx", "onnx/model_quantized.onnx")
#: Passages of a search: a processor takes some 10 ms for each, far more than an endpoint.
MAX_TEXTS = 20
#: Tokens of a query with a passage, and pairs that are computed at once.
MAX_TOKENS, _BATCH = 384, 4
_MAX_THREADS = 4


class CrossEncoder:
    """A model of a folder."""

    most = MAX_TEXTS

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        model = next((folder / each for each in MODELS if (folder / each).is_file()), None)
        tokenizer = folder / "tokenizer.json"
        if model is None or not tokenizer.is_file():
            raise BadInput(
                f"QUIRE_RERANK_MODEL: {folder} has no tokenizer.json with {MODELS[0]}. Name the "
                "folder of an ONNX cross-encoder, or set QUIRE_RERANK_URL for a model of a server."
            )
        self._tokenizer, self._session = _opened(model, tokenizer)
        self._inputs = [each.name for each in self._session.get_inputs()]

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return how relevant each text is, from 0 to 1; raise QuireError if that fails."""
        asked = encodable(query[:MAX_QUERY_CHARS])
        pairs = [self._tokenizer.encode(asked, encodable(text[:MAX_CHARS])) for text in texts]
        found: list[float] = []
        for start in range(0, len(pairs), _BATCH):
            found += self._logits(pairs[start : start + _BATCH])
        return [logistic(logit) for logit in found]

    def _logits(self, pairs: Sequence[Any]) -> list[float]:
        import numpy as np

        longest = max(len(pair.ids) for pair in pairs)
        given = {
            "input_ids": _padded([pair.ids for pair in pairs], longest),
            "attention_mask": _padded([pair.attention_mask for pair in pairs], longest),
            "token_type_ids": _padded([pair.type_ids for pair in pairs], longest),
        }
        try:
            [logits, *_] = self._session.run(None, {name: given[name] for name in self._inputs})
        except Exception as error:  # the library raises classes of its own
            raise Permanent(f"reranker {self.name}: {type(error).__name__}: {error}") from error
        found = np.asarray(logits, np.float64).reshape(len(pairs), -1)
        if found.shape[1] not in (1, 2) or not np.isfinite(found).all():
            raise Permanent(
                f"reranker {self.name}: expected one finite score for each pair, got "
                f"{found.shape[1]}. Name a model that was trained to rerank."
            )
        # Of two classes, the second one is "relevant".
        one = found[:, 0] if found.shape[1] == 1 else found[:, 1] - found[:, 0]
        return [float(each) for each in one]


def _padded(rows: Sequence[Sequence[int]], size: int) -> "NDArray[np.int64]":
    import numpy as np

    return np.array([[*row, *[0] * (size - len(row))] for row in rows], np.int64)


def _opened(model: Path, tokenizer: Path) -> tuple[Any, Any]:
    try:
        import onnxruntime
        from tokenizers import Tokenizer
    except ImportError as error:
        raise BadInput(
            f"QUIRE_RERANK_MODEL: needs the packages onnxruntime and tokenizers ({error}). Install "
            f"them with `{install_hint('ocr')}` and `pip install tokenizers`."
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = min(_MAX_THREADS, os.cpu_count() or 1)
    options.log_severity_level = 4
    try:
        reader = Tokenizer.from_file(str(tokenizer))
        reader.enable_truncation(MAX_TOKENS, strategy="longest_first")
        reader.no_padding()
        session = onnxruntime.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # both libraries raise classes of their own
        reason = f"{type(error).__name__}: {error}"[:300]
        raise BadInput(f"QUIRE_RERANK_MODEL: {model} cannot be opened ({reason}).") from error
    return reader, session
