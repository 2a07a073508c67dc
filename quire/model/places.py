"""What a source names, and whether a grant covers it; by the text alone, nothing is opened.

A place is written in one form: `/srv/share`, `s3://bucket/prefix`, `gdrive:ID`, `host:wiki.local`
or `notes:anything` for the source of a plugin. A grant covers a place that is the same, or below
it. A public URL names no place: everybody may fetch it.
"""

import posixpath
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from quire.errors import BadInput, Forbidden

BUCKETS = ("s3", "gs", "az")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DRIVE_ID = re.compile(r"[A-Za-z0-9_-]{4,}")
_DRIVE_HOSTS = frozenset({"drive.google.com", "docs.google.com"})
_IN_DRIVE_PATH = re.compile(r"/(?:d|folders|drive/shared-drives)/([A-Za-z0-9_-]{10,})")
_WILDCARD = re.compile(r"[*?\[]")
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?(:[0-9]{1,5})?|\[[0-9a-f:.]+\](:[0-9]{1,5})?")


class Type(StrEnum):
    """What sort of place it is."""

    PATH = "path"
    BUCKET = "bucket"
    DRIVE = "drive"
    HOST = "host"  # of an http or https URL
    PLUGIN = "plugin"


class Place(NamedTuple):
    """A place in its one form."""

    type: Type
    text: str

    def covers(self, other: "Place") -> bool:
        """Tell whether a grant of this place covers another one."""
        if self.type is not other.type:
            return False
        if self.text == other.text:
            return True
        if self.type is Type.HOST:  # without a port it covers all of them
            return other.text.rpartition(":")[0] == self.text
        stem = self.text.rstrip("/")
        is_whole = self.text.endswith(":")  # gdrive: and notes: cover all of it
        return other.text.startswith(stem if is_whole else f"{stem}/")


def place_of(source: str) -> Place:
    """Return the place that a source of a job names; raise BadInput if it names none.

    A pattern is cut off a path: its place is the folder that is walked.
    """
    found = _SCHEME.match(source)
    scheme = found[1].lower() if found else ""
    if scheme in ("http", "https"):
        return _of_url(source)
    if scheme == "gdrive":
        if (known := drive_id(source)) is None:
            raise BadInput(f"{source[:200]}: not a Google Drive file or folder. Write gdrive:ID.")
        return Place(Type.DRIVE, f"gdrive:{known}")
    if scheme in BUCKETS:
        return _of_bucket(scheme, source)
    if scheme and scheme != "file":
        rest = source[len(scheme) + 1 :]
        if ".." in re.split(r"[/\\]", rest):
            raise BadInput(f"{source[:200]}: a part of it is '..'. Write it without.")
        return Place(Type.PLUGIN, f"{scheme}:{rest}")
    return Place(Type.PATH, _path(source, is_url=scheme == "file"))


def place_to_grant(text: str) -> Place:
    """Return the place that a grant names; raise BadInput if it is not in one of the forms."""
    found = _SCHEME.match(text)
    scheme = found[1].lower() if found else ""
    if scheme == "host":
        return _host(text[len("host:") :])
    if scheme in ("http", "https"):
        parts = urlsplit(text)
        if parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
            raise BadInput(
                f"{text}: a grant names a whole host. Write host:{parts.hostname or 'NAME'}."
            )
        return _host(parts.netloc)
    if scheme == "gdrive" and text[len("gdrive:") :] in ("", "*"):
        return Place(Type.DRIVE, "gdrive:")
    if scheme not in ("", "file") and scheme not in BUCKETS and text.endswith(":*"):
        text = text[:-1]
    place = place_of(text)
    if place.type is Type.PATH and _WILDCARD.search(text):
        raise BadInput(f"{text}: a grant names a folder, not a pattern. Write the folder.")
    return place


def _host(text: str) -> Place:
    name = text.lower().rstrip(".")
    if not _HOST.fullmatch(name):
        raise BadInput(
            f"host {text[:100]!r}: is not a host name. Write host:NAME or host:NAME:PORT."
        )
    return Place(Type.HOST, f"host:{name}")


def _of_url(source: str) -> Place:
    try:
        parts = urlsplit(source)
        name, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise BadInput(f"{source[:200]}: is not a URL ({error}).") from None
    if not name:
        raise BadInput(f"{source[:200]}: names no host.")
    if known := drive_id(source):
        return Place(Type.DRIVE, f"gdrive:{known}")
    try:
        name = f"[{name}]" if ":" in name else name if name.isascii() else _ascii(name)
    except UnicodeError:
        raise BadInput(f"{source[:200]}: {name!r} is not a valid host name.") from None
    port = port or (443 if parts.scheme.lower() == "https" else 80)
    return Place(Type.HOST, f"host:{name.rstrip('.')}:{port}")


def _ascii(name: str) -> str:
    return name.encode("idna").decode()


def drive_id(source: str) -> str | None:
    """Return the file or folder id in `gdrive:ID` or a Google Drive URL, or None."""
    if source.lower().startswith("gdrive:"):
        found = _DRIVE_ID.fullmatch(source[len("gdrive:") :].strip("/"))
        return found[0] if found else None
    try:
        parts = urlsplit(source)
    except ValueError:
        return None
    if (parts.hostname or "") not in _DRIVE_HOSTS:
        return None
    if found := _IN_DRIVE_PATH.search(parts.path):
        return found[1]
    named = parse_qs(parts.query).get("id", [""])[0]
    return named if _DRIVE_ID.fullmatch(named) else None


def _of_bucket(scheme: str, source: str) -> Place:
    rest = source[len(scheme) + 1 :]
    name, _, key = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or not _BUCKET.fullmatch(name):
        raise BadInput(f"{source[:200]}: no bucket given. Write {scheme}://BUCKET/PREFIX.")
    key = key.strip("/")
    if key and not all(part not in ("", ".", "..") for part in key.split("/")):
        raise BadInput(
            f"{source[:200]}: a part of the prefix is empty, '.' or '..'. Write it without."
        )
    return Place(Type.BUCKET, f"{scheme}://{name}/{key}".rstrip("/"))


def _path(source: str, *, is_url: bool) -> str:
    if is_url:
        if not source.lower().startswith("file:///"):
            raise BadInput(f"{source[:200]}: is not a file URL. Write file:///FOLDER.")
        path = unquote(source[len("file://") :])
    else:
        path = source
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise BadInput(
            f"{source[:200]}: is not an absolute path. Write it from / on, without '..' and '~'."
        )
    parts = posixpath.normpath(path).lstrip("/").split("/")
    plain = next((at for at, part in enumerate(parts) if _WILDCARD.search(part)), len(parts))
    return "/" + "/".join(parts[:plain])


def is_granted(place: Place, grants: Iterable[str]) -> bool:
    """Tell whether one of a tenant's grants covers a place."""
    return any(place_to_grant(each).covers(place) for each in grants)


def not_granted(source: str, grants: Iterable[str]) -> Forbidden:
    """Return the one error for a source that a tenant may not use, whatever is there."""
    known = ", ".join(sorted(grants)[:20]) or "none"
    return Forbidden(
        f"source {source[:200]}: is not granted to this tenant (granted: {known}). Upload the "
        "file, or ask the operator for a grant: quire source allow"
    )


def granted_hosts(grants: Iterable[str]) -> frozenset[str]:
    """Return the hosts among a tenant's grants, some of them with a port."""
    return frozenset(each.removeprefix("host:") for each in grants if each.startswith("host:"))
