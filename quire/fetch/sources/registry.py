"""From the text a person gives to the source it means."""

import re
from collections.abc import Mapping

from quire.errors import BadInput
from quire.fetch.items import Item, Listed, Skipped, Source, SourceOptions, seen
from quire.model.contracts import SourceKind

__all__ = ["Item", "Listed", "Skipped", "Source", "SourceOptions", "open_source", "seen", "use"]

BUCKETS = ("s3", "gs", "az")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_OWN = ("a path", "file://", "https://", "http://", "gdrive:", "s3://", "gs://", "az://")
_plugged: dict[str, SourceKind] = {}


def use(sources: Mapping[str, SourceKind]) -> None:
    """List these sources of plugins from now on in this process, and no others."""
    _plugged.clear()
    _plugged.update(sources)


def open_source(url: str, options: SourceOptions | None = None) -> Source:
    """Return the source that a path or URL names; nothing is read yet."""
    options = options or SourceOptions()
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if not url:
        raise BadInput(f"source: no path or URL was given. Known: {_known()}.")
    if scheme in _plugged:
        from quire.fetch.sources.plugin import PluginSource

        return PluginSource(url, _plugged[scheme], options)
    if scheme in ("", "file") or (scheme and not url[len(scheme) + 1 :].startswith("/")):
        return _local_or_drive(url, scheme, options)
    if scheme in ("http", "https"):
        return _web(url, options)
    if scheme in BUCKETS:
        from quire.fetch.sources.bucket import BucketSource

        return BucketSource(url, options)
    raise BadInput(f"{url}: sources of the kind {scheme!r} are not known. Known: {_known()}.")


def _known() -> str:
    return ", ".join([*_OWN, *(f"{scheme}:" for scheme in sorted(_plugged))])


def _local_or_drive(url: str, scheme: str, options: SourceOptions) -> Source:
    from quire.fetch.names import file_path
    from quire.fetch.sources.folder import FolderSource

    if scheme == "gdrive":
        from quire.fetch.sources.gdrive import DriveSource

        return DriveSource(url, options)
    if url.lower().startswith("file://"):
        return FolderSource(str(file_path("file://" + url[7:])), options)
    if scheme and scheme != "file" and _mistyped(url):
        raise BadInput(f"{url}: sources of the kind {scheme!r} are not known. Known: {_known()}.")
    return FolderSource(url, options)


def _mistyped(url: str) -> bool:
    """A colon may be part of a file's name: it is, where such a file exists."""
    from pathlib import Path

    return not Path(url).exists()


def _web(url: str, options: SourceOptions) -> Source:
    from quire.fetch.sources.drive_links import drive_id

    if drive_id(url):
        from quire.fetch.sources.gdrive import DriveSource

        return DriveSource(url, options)
    from quire.fetch.sources.http import HttpSource

    return HttpSource(url, options)
