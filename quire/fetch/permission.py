"""Which files no source may open: Quire's own, and for users of the API those of the system.

A path is judged after its symbolic links are resolved. The operator's own jobs are refused only
what makes no sense: the home and the stored files.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from quire.errors import SourceRefused
from quire.model.places import Place, Type, is_granted, not_granted, place_of, place_to_grant

#: What Quire keeps in a home, where an operator may keep folders of their own too.
OWN = (
    "blobs", "cache", "quire.db", "quire.db-wal", "quire.db-shm", "quire.toml", "run", "scratch",
    "secret.key",
)  # fmt: skip
#: Never for users of the API, nor in a grant.
SYSTEM = ("/proc", "/sys", "/dev", "/run", "/var/run", "/etc/ssl/private")
#: The same, wherever they are.
CREDENTIAL_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".azure", ".kube", ".docker", ".quire"})
_CREDENTIAL_PATHS = ("/.config/gcloud/", "/etc/shadow", "/etc/gshadow", "/etc/sudoers")
#: Variables that name files with credentials.
_NAMING = ("GOOGLE_APPLICATION_CREDENTIALS", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
           "AWS_WEB_IDENTITY_TOKEN_FILE", "CREDENTIALS_DIRECTORY")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Forbidden:
    """Paths that are never opened, all of them without symbolic links."""

    own: tuple[str, ...] = ()
    #: The home of the operator, who may keep folders of their own in it.
    home: str = ""
    #: Of the system; empty for the operator.
    system: tuple[str, ...] = ()

    def why(self, path: str) -> str:
        """Return why a path may not be opened, or nothing; the path has no symbolic links."""
        if path == self.home or any(is_below(path, each) for each in self.own):
            return "belongs to Quire itself"
        if self.system and (
            any(is_below(path, each) for each in self.system)
            or not CREDENTIAL_FOLDERS.isdisjoint(path.split("/"))
            or any(each in f"{path}/" for each in _CREDENTIAL_PATHS)
        ):
            return "belongs to the system"
        return ""


def forbidden(settings: Mapping[str, Any], *, by_api: bool) -> Forbidden:
    """Return what the sources of a job may never open."""
    files = (settings.get("gdrive_credentials"), *(os.environ.get(name) for name in _NAMING))
    files += tuple(
        v for k, v in os.environ.items() if k.startswith("QUIRE_") and k.endswith("_FILE")
    )
    return _forbidden(
        str(settings.get("home") or ""),
        str(settings.get("url") or ""),
        tuple(sorted({each for each in files if each})),
        by_api,
    )


@cache
def _forbidden(home: str, url: str, secrets: tuple[str, ...], by_api: bool) -> Forbidden:
    own = [f"{home}/{name}" for name in OWN] if home else []
    if home and by_api:
        own.insert(0, home)
    if url.startswith("sqlite:///"):
        own.append(url.removeprefix("sqlite:///"))
    own += secrets
    paths = tuple(dict.fromkeys(os.path.realpath(each) for each in own))
    system = [*SYSTEM, *(os.path.realpath(each) for each in SYSTEM)] if by_api else []
    operators = os.path.realpath(home) if home and not by_api else ""
    return Forbidden(paths, operators, tuple(dict.fromkeys(system)))


def require_grant(source: str, grants: Sequence[str], settings: Mapping[str, Any]) -> Place:
    """Return the place of a source that a user of the API may use, or raise Forbidden.

    By the text and by the links of this machine. The address of a host is judged when it is
    connected to: only one that is not public needs a grant.
    """
    place = place_of(source)
    if place.type is Type.HOST:
        return place
    if not is_granted(place, grants):
        raise not_granted(source, grants)
    if place.type is Type.PATH:
        real_path(source, place.text, grants, settings)
    if place.type is Type.BUCKET and is_blob_bucket(place, settings):
        raise not_granted(source, grants)
    return place


def real_path(source: str, path: str, grants: Sequence[str], settings: Mapping[str, Any]) -> str:
    """Resolve the links of a path; it must still be covered by a grant, and not forbidden."""
    real = os.path.realpath(path)
    is_inside = any(is_below(real, root) for root in roots(grants))
    if not is_inside or forbidden(settings, by_api=True).why(real):
        raise not_granted(source, grants)
    return real


def roots(grants: Sequence[str]) -> tuple[str, ...]:
    """Return the granted folders, without symbolic links."""
    return tuple(os.path.realpath(each) for each in grants if each.startswith("/"))


def is_blob_bucket(place: Place, settings: Mapping[str, Any]) -> bool:
    """Tell whether a place is in the bucket where Quire stores its files."""
    blobs = str(settings.get("blobs") or "")
    return bool(blobs) and _bucket(place.text) == _bucket(blobs)


def refuse_blobs(url: str, settings: Mapping[str, Any]) -> None:
    """Refuse a source of the operator that lies in Quire's own stored files, or holds them."""
    blobs = str(settings.get("blobs") or "")
    if not blobs or _bucket(url) != _bucket(blobs):
        return
    inside, own = _prefix(url), _prefix(blobs)
    if inside.startswith(own) or own.startswith(inside):
        raise SourceRefused(
            f"{url}: holds the stored files of Quire (QUIRE_BLOBS), which cannot be a "
            "source. Name another prefix."
        )


def require_grantable(text: str, settings: Mapping[str, Any]) -> Place:
    """Return the place of a new grant; refuse what no grant may name."""
    place = place_to_grant(text)
    if place.type is Type.PATH and (
        why := forbidden(settings, by_api=True).why(os.path.realpath(place.text))
    ):
        raise SourceRefused(f"{place.text}: {why}, so it cannot be granted. Nothing was changed.")
    if place.type is Type.BUCKET and is_blob_bucket(place, settings):
        raise SourceRefused(
            f"{place.text}: is the bucket of stored files (QUIRE_BLOBS), so it cannot be granted. "
            "Nothing was changed. Keep sources in another bucket."
        )
    return place


def _bucket(url: str) -> tuple[str, str]:
    scheme, _, rest = url.partition("://")
    return scheme.lower(), rest.partition("/")[0]


def _prefix(url: str) -> str:
    parts = url.partition("://")[2].split("/")[1:]
    return "".join(f"{part}/" for part in parts if part)


def is_below(path: str, folder: str) -> bool:
    """Tell whether a path is a folder or inside it; neither has symbolic links."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
