"""A cross-encoder of a few operations: it counts the pairs of equal words of a query and a text.

Written as the protocol buffers of ONNX, byte by byte, so that no library is needed to make it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

_INT64, _FLOAT = 7, 1
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "tide", "moon", "ship", "noon", "the", "and"]


def _varint(value: int) -> bytes:
    found = b""
    value &= (1 << 64) - 1
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def _node(kind: str, inputs: Sequence[str], output: str, **numbers: int) -> bytes:
    found = b"".join(_message(1, name) for name in inputs) + _message(2, output)
    found += _message(4, kind)
    for name, value in numbers.items():
        found += _message(5, _message(1, name) + _number(3, value) + _number(20, 2))
    return _message(1, found)


def _constant(name: str, kind: int, values: Sequence[float], *dims: int) -> bytes:
    code = f"<{len(values)}{'q' if kind == _INT64 else 'f'}"
    raw = struct.pack(code, *values)
    sizes = b"".join(_number(1, size) for size in dims)
    return _message(5, sizes + _number(2, kind) + _message(8, name) + _message(9, raw))


def _value(field: int, name: str, kind: int, *dims: str) -> bytes:
    shape = b"".join(_message(1, _message(2, size)) for size in dims)
    tensor = _number(1, kind) + _message(2, shape)
    return _message(field, _message(1, name) + _message(2, _message(1, tensor)))


def model(classes: int = 1) -> bytes:
    """The model: logits (pairs, classes), each the number of equal words, less one half."""
    nodes = [
        # Words of the query have type 0, those of the text type 1; below 4 are no words.
        _node("Unsqueeze", ["input_ids", "two"], "down"),
        _node("Unsqueeze", ["input_ids", "one"], "across"),
        _node("Equal", ["down", "across"], "equal"),
        _node("Unsqueeze", ["token_type_ids", "two"], "type_down"),
        _node("Unsqueeze", ["token_type_ids", "one"], "type_across"),
        _node("Less", ["type_down", "type_across"], "between"),
        _node("Greater", ["down", "three"], "is_word"),
        _node("And", ["equal", "between"], "some"),
        _node("And", ["some", "is_word"], "found"),
        _node("Cast", ["found"], "as_float", to=_FLOAT),
        _node("ReduceSum", ["as_float", "both"], "counted", keepdims=0),
        _node("Unsqueeze", ["counted", "one"], "column"),
        _node("Sub", ["column", "half"], "shifted"),
        _node("MatMul", ["shifted", "spread"], "logits"),
    ]
    constants = [
        _constant("one", _INT64, [1], 1), _constant("two", _INT64, [2], 1),
        _constant("three", _INT64, [3], 1), _constant("both", _INT64, [1, 2], 2),
        _constant("half", _FLOAT, [0.5], 1),
        _constant("spread", _FLOAT, [0.0] * (classes - 1) + [1.0], 1, classes),
    ]  # fmt: skip
    inputs = [
        _value(11, name, _INT64, "pairs", "tokens")
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    outputs = [_value(12, "logits", _FLOAT, "pairs", "classes")]
    graph = b"".join([*nodes, _message(2, "pairs"), *constants, *inputs, *outputs])
    return _number(1, 8) + _message(7, graph) + _message(8, _number(2, 13))


def make(folder: Path, classes: int = 1, place: str = "model.onnx") -> Path:
    """Write the model and its tokenizer as Hugging Face has them; returns the folder."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing

    words = {word: at for at, word in enumerate(WORDS)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )  # fmt: skip
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).write_bytes(model(classes))
    return folder
