"""The settings of a corpus: how its documents are read, chunked and embedded.

Each setting is part of the reuse key of the first stage that it affects, and of no earlier one:
changing the chunk size never reads a page again.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from quire.errors import BadInput

#: Increased when the same settings give different chunks.
CUT_VERSION = 2

#: First stage that a changed setting repeats for documents that are already indexed.
REPEATED = {
    "parser": "read",
    "row_size": "read",
    "layout": "read",
    "ocr": "read",
    "ocr_languages": "read",
    "chunk_tokens": "cut",
    "overlap": "cut",
    "delimiter": "cut",
    "language": "cut",
    "embedder": "embed",
}


def _setting(default: Any, sentence: str) -> Any:
    return field(default=default, metadata={"doc": sentence})


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How documents are indexed; set by a corpus, overridden by a document."""

    parser: str = _setting("auto", "Parser: auto, or the name of a plugin.")
    page_size: int = _setting(12, "Pages per task; not of a PDF without scans.")
    small_size: int = _setting(96, "Pages of a PDF without scans per task; 0: as with scans.")
    row_size: int = _setting(3000, "Rows of a sheet or CSV file per page.")
    chunk_tokens: int = _setting(352, "Maximum tokens per chunk.")
    overlap: int = _setting(32, "Tokens that a chunk repeats from the previous one.")
    delimiter: str = _setting("", "Preferred separator between chunks; empty: paragraphs.")
    layout: str = _setting(
        "", "Plugin for tables that were missed: NAME, or NAME:all for every page."
    )
    ocr: str = _setting("auto", "OCR: auto (pages without text), always or never.")
    ocr_languages: str = _setting("", "OCR languages, separated by commas; empty: any.")
    language: str = _setting("auto", "Language for full-text search: auto, or a code like de.")
    embedder: str = _setting("wordllama", "Embedding model: wordllama, none or openai:MODEL.")
    thumbnails: bool = _setting(True, "Create an image of the first page.")
    propagate_deletions: bool = _setting(False, "Delete documents that the source no longer lists.")

    def merged(self, given: Mapping[str, Any]) -> "Pipeline":
        """Return these settings with some replaced, validated."""
        return _checked(Pipeline(**{**asdict(self), **parsed(given)}))

    def cut(self) -> dict[str, Any]:
        """Return the settings that decide how text is chunked."""
        return {
            "version": CUT_VERSION,
            "tokens": self.chunk_tokens,
            "overlap": self.overlap,
            "delimiter": self.delimiter,
            "language": self.language,
        }


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def digest(*parts: Any) -> str:
    """Return the digest of the canonical JSON: equal values, equal digests."""
    return hashlib.blake2b(
        _canonical(parts).encode(errors="surrogatepass"), digest_size=20
    ).hexdigest()


def digests(kind: str, parts: Iterable[str], recipe: str) -> Iterator[str]:
    """Yield `digest(kind, part, recipe)` of each part; the shared text is encoded once."""
    before, after = f"[{_canonical(kind)},".encode(), f",{_canonical(recipe)}]".encode()
    for part in parts:
        whole = before + _canonical(part).encode(errors="surrogatepass") + after
        yield hashlib.blake2b(whole, digest_size=20).hexdigest()


def chunk_digest(text: str, context: str) -> str:
    """Return the digest that identifies a chunk with its context."""
    return text_digest(f"{context}\0{text}" if context else text)


def searchable(text: str, context: str | None) -> str:
    """Return what the full-text index gets of a chunk."""
    return f"{context}\n{text}" if context else text


def text_digest(text: str) -> str:
    """Return the digest that identifies a text."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=20).hexdigest()


def described() -> list[tuple[str, Any, str]]:
    """List name, default and description of every corpus setting."""
    return [(each.name, each.default, each.metadata["doc"]) for each in fields(Pipeline)]


def parsed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values to the types of the settings; refuse unknown names."""
    known = {each.name: each for each in fields(Pipeline)}
    values = {}
    for name, raw in given.items():
        if name not in known:
            names = ", ".join(sorted(known))
            raise BadInput(f"corpus setting {name!r}: unknown. Known settings: {names}.")
        values[name] = _parsed(name, raw, known[name].default)
    return values


def _parsed(name: str, raw: Any, default: Any) -> Any:
    if isinstance(default, bool):
        word = str(raw).lower()
        if word not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
            raise BadInput(f"corpus setting {name}: {raw!r} is not true or false.")
        return word in ("true", "1", "yes", "on")
    if isinstance(default, int):
        try:
            return int(str(raw))
        except ValueError:
            raise BadInput(f"corpus setting {name}: {raw!r} is not a whole number.") from None
    return str(raw)


_BOUNDS = {
    "page_size": (1, 10_000),
    "small_size": (0, 10_000),
    "row_size": (1, 1_000_000),
    "chunk_tokens": (16, 8_192),
    "overlap": (0, 4_096),
}


def _checked(p: Pipeline) -> Pipeline:
    for name, (least, most) in _BOUNDS.items():
        if not least <= getattr(p, name) <= most:
            raise BadInput(
                f"corpus setting {name}: {getattr(p, name)} is not between {least} and {most}."
            )
    if p.overlap * 2 > p.chunk_tokens:
        raise BadInput(
            f"corpus setting overlap: {p.overlap} is more than half of chunk_tokens "
            f"({p.chunk_tokens})."
        )
    if p.ocr not in ("auto", "always", "never"):
        raise BadInput(f"corpus setting ocr: {p.ocr!r} is not auto, always or never.")
    if p.embedder not in ("wordllama", "none") and not p.embedder.startswith("openai:"):
        raise BadInput(
            f"corpus setting embedder: {p.embedder!r} is not wordllama, none or openai:MODEL."
        )
    return p
