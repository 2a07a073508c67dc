"""Names of files: what is shown, what may be written to a disk, and the URI of a path.

A name that comes from outside is never a path: separators and control characters are
replaced, and bytes that are not UTF-8 show as U+FFFD. The URI keeps the exact bytes.
"""

import os
import re
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST = 255  # bytes of a name on the file systems in use


def shown(name: str) -> str:
    """Return the name as text that can be stored and printed."""
    if name.isascii() and name.isprintable():
        return name
    text = os.fsencode(name).decode("utf-8", "replace") if _broken(name) else name
    return _UNSHOWN.sub("\ufffd", text)


def safe_name(name: str) -> str:
    """Return a name that can be written in any folder and leaves it nowhere."""
    text = re.sub(r"[/\\]", "_", shown(name)).strip()
    if text.strip(".") == "":
        text = "unnamed"
    return _shortened(text)


def _shortened(name: str) -> str:
    if len(name.encode()) <= _LONGEST:
        return name
    stem, dot, suffix = name.rpartition(".")
    if not stem or len(suffix) > 16:
        stem, dot, suffix = name, "", ""
    room = _LONGEST - len((dot + suffix).encode())
    return stem.encode()[:room].decode(errors="ignore") + dot + suffix


def _broken(name: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in name)


def file_uri(path: str) -> str:
    """Return the URI of an absolute path; the same bytes give the same text."""
    return "file://" + quote_from_bytes(os.fsencode(path))


def file_path(uri: str) -> Path:
    """Return the path that a file URI names."""
    return Path(os.fsdecode(unquote_to_bytes(uri.removeprefix("file://"))))
