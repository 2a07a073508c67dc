"""The settings of a corpus: what decides how its documents are read, cut and embedded.

Each is part of a reuse key, at the stage it matters to and no earlier: another chunk size never
reads a page again.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from quire.errors import BadInput

#: Grows when the same settings would give other results.
CUT_VERSION = 1


def _setting(default: Any, sentence: str) -> Any:
    return field(default=default, metadata={"doc": sentence})


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How documents are taken in; a corpus sets it, a document may override it."""

    parser: str = _setting("auto", "Parser: auto, or the name of a plugin's.")
    page_size: int = _setting(12, "Pages of a PDF that one task reads.")
    small_size: int = _setting(48, "Pages of a PDF without scans that one task reads whole.")
    row_size: int = _setting(3000, "Rows of a table that one task reads.")
    chunk_tokens: int = _setting(352, "Most tokens of a chunk.")
    overlap: int = _setting(32, "Tokens that a chunk repeats of the one before it.")
    delimiter: str = _setting("", "Text at which chunks are cut first; empty: paragraphs.")
    ocr: str = _setting("auto", "OCR: auto (pages without text), always or never.")
    ocr_languages: str = _setting("", "Languages for OCR, separated by commas; empty: any.")
    language: str = _setting("auto", "Language of the text for search: auto, or a code like de.")
    embedder: str = _setting("wordllama", "wordllama, none, or openai:MODEL with an endpoint.")
    thumbnails: bool = _setting(True, "Make a picture of the first page.")
    propagate_deletions: bool = _setting(False, "Delete documents that are gone from the source.")

    def merged(self, given: Mapping[str, Any]) -> "Pipeline":
        """Return these settings with some replaced, checked."""
        return _checked(Pipeline(**{**asdict(self), **parsed(given)}))

    def cut(self) -> dict[str, Any]:
        """Return what decides how a page's text is cut."""
        return {
            "version": CUT_VERSION,
            "tokens": self.chunk_tokens,
            "overlap": self.overlap,
            "delimiter": self.delimiter,
            "language": self.language,
        }


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def digest(*parts: Any) -> str:
    """Return a digest of canonical JSON: the same meaning, the same digest."""
    return hashlib.blake2b(
        _canonical(parts).encode(errors="surrogatepass"), digest_size=20
    ).hexdigest()


def digests(kind: str, parts: Iterable[str], recipe: str) -> Iterator[str]:
    """Yield `digest(kind, part, recipe)` of each; what all of them share is written once."""
    before, after = f"[{_canonical(kind)},".encode(), f",{_canonical(recipe)}]".encode()
    for part in parts:
        whole = before + _canonical(part).encode(errors="surrogatepass") + after
        yield hashlib.blake2b(whole, digest_size=20).hexdigest()


def text_digest(text: str) -> str:
    """Return the digest that a chunk is known by."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=20).hexdigest()


def described() -> list[tuple[str, Any, str]]:
    """List name, default and sentence of every setting of a corpus."""
    return [(each.name, each.default, each.metadata["doc"]) for each in fields(Pipeline)]


def parsed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Turn texts into the types of the settings; refuse unknown names."""
    known = {each.name: each for each in fields(Pipeline)}
    values = {}
    for name, raw in given.items():
        if name not in known:
            names = ", ".join(sorted(known))
            raise BadInput(f"corpus setting {name!r}: not known. Known: {names}.")
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
