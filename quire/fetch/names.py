"""File names: printable text, names safe to write to disk, and file URIs.

A name from outside is never used as a path: separators and control characters are replaced, and
bytes that are not UTF-8 become U+FFFD. The URI keeps the exact bytes.
"""

import os
import re
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_MAX_NAME_BYTES = 255  # the limit of common file systems


def printable_name(name: str) -> str:
    """Return the name as text that is safe to store and print."""
    if name.isascii() and name.isprintable():
        return name
    has_surrogates = any("\ud800" <= character <= "\udfff" for character in name)
    text = os.fsencode(name).decode("utf-8", "replace") if has_surrogates else name
    return _UNPRINTABLE.sub("\ufffd", text)


def safe_name(name: str) -> str:
    """Return a name that can be created in any folder and never escapes it."""
    text = re.sub(r"[/\\]", "_", printable_name(name)).strip()
    if text.strip(".") == "":
        text = "unnamed"
    if len(text.encode()) <= _MAX_NAME_BYTES:
        return text
    stem, dot, suffix = text.rpartition(".")
    if not stem or len(suffix) > 16:
        stem, dot, suffix = text, "", ""
    room = _MAX_NAME_BYTES - len((dot + suffix).encode())
    return stem.encode()[:room].decode(errors="ignore") + dot + suffix


def file_uri(path: str) -> str:
    """Return the URI of an absolute path; equal bytes give equal text."""
    return "file://" + quote_from_bytes(os.fsencode(path))


def file_path(uri: str) -> Path:
    """Return the path of a file URI."""
    return Path(os.fsdecode(unquote_to_bytes(uri.removeprefix("file://"))))
