"""Character encodings: guesses the encoding of text files and removes unusable characters."""

import codecs
import re

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(rb"<(?:meta|\?xml)[^>]*?(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)", re.I)
_UNUSABLE = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")


def guess(sample: bytes, *, truncated: bool = False) -> str:
    """Return the encoding of a text; a `truncated` sample may end within a character."""
    for mark, name in _BYTE_ORDER_MARKS:
        if sample.startswith(mark):
            return name
    zeros = sample[0::2].count(0), sample[1::2].count(0)
    if max(zeros) > 0.2 * len(sample) and min(zeros) == 0:
        return "utf-16-be" if zeros[0] else "utf-16-le"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=not truncated)
    except UnicodeDecodeError:
        return _declared(sample) or "cp1252"
    return "utf-8"


def decode(content: bytes) -> str:
    """Return bytes as text with plain line ends and no unusable characters."""
    text = content.decode(guess(content), "replace")
    return clean(text.replace("\r\n", "\n").replace("\r", "\n"))


def clean(text: str) -> str:
    """Replace NUL, other control characters and lone surrogates by spaces."""
    return _UNUSABLE.sub(" ", text)


def _declared(sample: bytes) -> str | None:
    """Return the encoding that HTML or XML declares; UTF-8 and Latin-1 have been ruled out."""
    found = _DECLARED.search(sample[:4096])
    if not found:
        return None
    try:
        name = codecs.lookup(found[1].decode("ascii")).name
        b"".decode(name)
    except (LookupError, UnicodeDecodeError):
        return None
    return None if name in ("utf-8", "iso8859-1", "ascii") or name.startswith("utf-") else name
