"""Opens the source that a path or URL names."""

import re
from collections.abc import Mapping
from pathlib import Path

from quire.errors import BadInput
from quire.fetch.items import Source, SourceOptions
from quire.model.contracts import SourceKind
from quire.model.places import BUCKETS, drive_id

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
    if scheme in ("gdrive", "http", "https"):
        from quire.fetch.sources.gdrive import DriveSource
        from quire.fetch.sources.http import HttpSource

        is_drive = scheme == "gdrive" or drive_id(url)
        return DriveSource(url, options) if is_drive else HttpSource(url, options)
    if scheme in BUCKETS and url[len(scheme) + 1 :].startswith("/"):
        from quire.fetch.sources.bucket import BucketSource

        return BucketSource(url, options)
    # A colon may be part of a file name.
    if scheme not in ("", "file") and not Path(url).exists():
        raise BadInput(f"{url}: unknown source type {scheme!r}. Known: {_known()}.")
    from quire.fetch.names import file_path
    from quire.fetch.sources.folder import FolderSource

    is_uri = url.lower().startswith("file://")
    return FolderSource(str(file_path("file://" + url[7:])) if is_uri else url, options)


def _known() -> str:
    return ", ".join([*_BUILT_IN, *(f"{scheme}:" for scheme in sorted(_plugin_sources))])
