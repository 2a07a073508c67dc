"""Character encodings: detects the encoding of text files and removes unusable characters.

In order: a byte order mark, UTF-8 if the bytes decode, the encoding that HTML or XML declares, and
chardet. The first three decide nearly all files; chardet is imported for the rest only.
"""

import codecs
import re

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(
    rb"<(?:meta|\?xml)[^<>]*?(?:charset|encoding)\s*+=\s*+[\"']?([\w.:-]++)", re.IGNORECASE
)
_UNUSABLE = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")

_DEFAULT = "cp1252"
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_NOT_ASCII_RUN = re.compile(rb"[\x80-\xff]{3,}")
_CONTEXT_BYTES, _SAMPLE_BYTES = 1_000, 100_000
#: The choices for text that is mostly ASCII: of all encodings, chardet takes "Preis: 5 €" for
#: Hebrew. Words of other alphabets are runs of non-ASCII bytes.
_MOSTLY_ASCII = (
    *("windows-1252", "windows-1250", "windows-1254", "windows-1257", "iso-8859-2"),
    *("shift_jis", "euc-jp", "iso-2022-jp", "gb18030", "big5", "euc-kr", "cp949"),
)


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
        return _declared(sample) or _detect(sample)
    return _detect(sample) if b"\x1b$" in sample else "utf-8"  # the escape of ISO-2022-JP


def decode(content: bytes) -> str:
    """Return bytes as text with plain line ends and no unusable characters."""
    text = content.decode(guess(content), "replace")
    return clean(text.replace("\r\n", "\n").replace("\r", "\n"))


def clean(text: str) -> str:
    """Replace NUL, other control characters and lone surrogates by spaces."""
    return _UNUSABLE.sub(" ", text)


def _declared(sample: bytes) -> str | None:
    """Return the encoding that HTML or XML declares, unless it is UTF-8, which was ruled out."""
    found = _DECLARED.search(sample[:4096])
    if not found:
        return None
    try:
        name = codecs.lookup(found[1].decode("ascii")).name
        b"".decode(name)
    except (LookupError, UnicodeDecodeError):
        return None
    if name in ("iso8859-1", "ascii"):
        return _DEFAULT  # as the WHATWG encoding standard defines these labels
    return None if name.startswith("utf-") else name


def _detect(sample: bytes) -> str:
    import chardet
    from chardet.enums import EncodingEra

    # From the first byte that is not ASCII on: chardet reads only so far.
    first = _NOT_ASCII.search(sample)
    start = max(0, first.start() - _CONTEXT_BYTES) if first else 0
    sample = sample[start : start + _SAMPLE_BYTES]
    in_runs = sum(map(len, _NOT_ASCII_RUN.findall(sample)))
    if 2 * in_runs < len(_NOT_ASCII.findall(sample)) or not first:
        found = chardet.detect(sample, include_encodings=_MOSTLY_ASCII)
    else:
        era = EncodingEra.MODERN_WEB | EncodingEra.LEGACY_ISO | EncodingEra.DOS
        found = chardet.detect(sample, encoding_era=era)
    name = found["encoding"] or _DEFAULT
    try:
        return codecs.lookup(name).name
    except LookupError:
        return _DEFAULT
