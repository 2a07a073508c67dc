"""Which letters the bytes of a text file stand for, guessed where nothing says so."""

import codecs
import re

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(rb"<(?:meta|\?xml)[^>]*?(?:charset|encoding)\s*=\s*[\"']?([\w.:-]+)", re.I)
_UNFIT = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")


def guess(sample: bytes, *, cut: bool = False) -> str:
    """Return the encoding of a text; `cut` says that the sample may end within a letter."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    zeros = sample[0::2].count(0), sample[1::2].count(0)
    if max(zeros) > 0.2 * len(sample) and min(zeros) == 0:
        return "utf-16-be" if zeros[0] else "utf-16-le"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=not cut)
    except UnicodeDecodeError:
        return _declared(sample) or "cp1252"
    return "utf-8"


def decode(content: bytes) -> str:
    """Return the text of bytes, without the characters that no database or reader accepts."""
    text = content.decode(guess(content), "replace")
    return clean(text.replace("\r\n", "\n").replace("\r", "\n"))


def clean(text: str) -> str:
    """Return text without NUL, control characters and halves of surrogate pairs."""
    return _UNFIT.sub(" ", text)


def _declared(sample: bytes) -> str | None:
    found = _DECLARED.search(sample[:4096])
    if not found:
        return None
    try:
        name = codecs.lookup(found[1].decode("ascii")).name
        b"".decode(name)
    except (LookupError, UnicodeDecodeError):
        return None
    return None if name in ("utf-8", "iso8859-1", "ascii") or name.startswith("utf-") else name
