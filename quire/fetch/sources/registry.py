"""Opens the source that a path or URL names."""

import re
from collections.abc import Mapping

from quire.errors import BadInput
from quire.fetch.items import Source, SourceOptions
from quire.model.contracts import SourceKind

BUCKETS = ("s3", "gs", "az")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BUILT_IN = ("a path", "file://", "https://", "http://", "gdrive:", "s3://", "gs://", "az://")
_plugin_sources: dict[str, SourceKind] = {}


def set_plugin_sources(sources: Mapping[str, SourceKind]) -> None:
    """Set the plugin sources of this process."""
    _plugin_sources.clear()
    _plugin_sources.update(sources)


def open_source(url: str, options: SourceOptions | None = None) -> Source:
    """Return the source that a path or URL names; nothing is read yet."""
    options = options or SourceOptions()
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if not url:
        raise BadInput(f"source: no path or URL given. Known: {_known()}.")
    if scheme in _plugin_sources:
        from quire.fetch.sources.plugin import PluginSource

        return PluginSource(url, _plugin_sources[scheme], options)
    if scheme in ("", "file") or (scheme and not url[len(scheme) + 1 :].startswith("/")):
        return _local_or_drive(url, scheme, options)
    if scheme in ("http", "https"):
        return _http_or_drive(url, options)
    if scheme in BUCKETS:
        from quire.fetch.sources.bucket import BucketSource

        return BucketSource(url, options)
    raise BadInput(f"{url}: unknown source type {scheme!r}. Known: {_known()}.")


def _known() -> str:
    return ", ".join([*_BUILT_IN, *(f"{scheme}:" for scheme in sorted(_plugin_sources))])


def _local_or_drive(url: str, scheme: str, options: SourceOptions) -> Source:
    from quire.fetch.names import file_path
    from quire.fetch.sources.folder import FolderSource

    if scheme == "gdrive":
        from quire.fetch.sources.gdrive import DriveSource

        return DriveSource(url, options)
    if url.lower().startswith("file://"):
        return FolderSource(str(file_path("file://" + url[7:])), options)
    if scheme and scheme != "file" and _is_missing(url):
        raise BadInput(f"{url}: unknown source type {scheme!r}. Known: {_known()}.")
    return FolderSource(url, options)


def _is_missing(url: str) -> bool:
    """Tell whether no such file exists: a colon may be part of a file name."""
    from pathlib import Path

    return not Path(url).exists()


def _http_or_drive(url: str, options: SourceOptions) -> Source:
    from quire.fetch.sources.gdrive import drive_id

    if drive_id(url):
        from quire.fetch.sources.gdrive import DriveSource

        return DriveSource(url, options)
    from quire.fetch.sources.http import HttpSource

    return HttpSource(url, options)
