"""The Google Drive file or folder that a URL, as copied from a browser, names."""

import re
from urllib.parse import parse_qs, urlsplit

_HOSTS = frozenset({"drive.google.com", "docs.google.com"})
_IN_PATH = re.compile(r"/(?:d|folders|drive/shared-drives)/([A-Za-z0-9_-]{10,})")
_ID = re.compile(r"[A-Za-z0-9_-]{4,}")


def drive_id(url: str) -> str | None:
    """Return the id in `gdrive:ID` or in a URL of Google Drive, or None."""
    if url.lower().startswith("gdrive:"):
        found = _ID.fullmatch(url[len("gdrive:") :].strip("/"))
        return found[0] if found else None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if (parts.hostname or "") not in _HOSTS:
        return None
    if found := _IN_PATH.search(parts.path):
        return found[1]
    named = parse_qs(parts.query).get("id", [""])[0]
    return named if _ID.fullmatch(named) else None
