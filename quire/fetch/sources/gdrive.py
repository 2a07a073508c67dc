"""Google Drive as a source: files, folders, shared drives, shortcuts, Google's own formats.

Google's client lists and authenticates; `download` fetches the bytes. Folders are listed before
their subfolders; the cursor holds the folders still to list, with their page tokens.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from quire.errors import BadInput, Gone, QuireError
from quire.fetch.http_client import Request
from quire.fetch.items import Check, Fetched, Item, ListingPage, Progress, Skipped, SourceOptions
from quire.fetch.names import printable_name
from quire.fetch.sources.drive_api import DriveApi
from quire.fetch.sources.globs import matcher, path_filter
from quire.fetch.transfer.download import Remote, download
from quire.model.places import drive_id

_OWN = "application/vnd.google-apps."
_FOLDER, _SHORTCUT = _OWN + "folder", _OWN + "shortcut"
_PDF = "application/pdf"
_XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_EXPORTS = {
    _OWN + "document": (_PDF, ".pdf"),
    _OWN + "spreadsheet": (_XLSX, ".xlsx"),
    _OWN + "presentation": (_PDF, ".pdf"),
    _OWN + "drawing": (_PDF, ".pdf"),
}


@dataclass(slots=True)
class _OpenFolder:
    """A folder still to be listed, from a page token on."""

    id: str
    path: str
    drive: str | None
    page: str | None = None


@dataclass(slots=True)
class _Crawl:
    """Progress of a listing: open folders, and folders reached through shortcuts."""

    open: list[_OpenFolder]
    followed: list[str]

    def text(self) -> str:
        rows = [[each.id, each.path, each.drive, each.page] for each in self.open]
        return json.dumps({"open": rows, "followed": self.followed}, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> "_Crawl":
        state = json.loads(text)
        return cls([_OpenFolder(*row) for row in state["open"]], list(state["followed"]))


class DriveSource:
    """One Google Drive file, or a folder with everything below it."""

    def __init__(self, url: str, options: SourceOptions) -> None:
        found = drive_id(url)
        if not found:
            raise BadInput(f"{url}: not a Google Drive file or folder. Use gdrive:ID or its link.")
        self._id = found
        self._options = options
        self._api = DriveApi(options)
        self._is_included = path_filter(options.include, options.exclude)
        self._is_excluded = matcher(options.exclude)

    def pages(self, after: str | None = None) -> Iterator[ListingPage]:
        """List folder by folder; the cursor holds the open folders and page tokens."""
        with closing(self._api):
            yield from self._list_pages(after)

    def _list_pages(self, after: str | None) -> Iterator[ListingPage]:
        if after is None:
            start = self._resolve_shortcut(self._api.file(self._id))
            if start["mimeType"] != _FOLDER:
                yield self._page([start], _Crawl([], []), "")
                return
            crawl = _Crawl([_OpenFolder(start["id"], "", start.get("driveId"))], [start["id"]])
        else:
            crawl = _Crawl.of(after)
        while crawl.open:
            here = crawl.open.pop()
            try:
                files, token = self._api.children(here.id, here.drive, here.page)
            except Gone as error:
                if not here.path:
                    raise
                yield ListingPage([], crawl.text(), [Skipped(f"gdrive:{here.id}", str(error))])
                continue
            if token:
                crawl.open.append(_OpenFolder(here.id, here.path, here.drive, token))
            yield self._page(files, crawl, here.path)

    def fetch(self, item: Item, part: Path, progress: Progress, check: Check) -> Fetched:
        """Download the verified bytes to `part`; Google's own formats are exported."""
        exported = item.size is None
        url = f"{self._api.root}files/{quote(item.uri.removeprefix('gdrive:'), safe='')}"
        if exported:
            url += f"/export?mimeType={quote(item.media_type or _PDF, safe='')}"
        else:
            url += "?alt=media&supportsAllDrives=true"
        remote = Remote(
            request=lambda: Request(url, {"Authorization": f"Bearer {self._api.token()}"}),
            refresh=self._api.refresh,
            exported=exported,
        )
        return download(remote, item, part, self._options, progress, check)

    def doctor(self) -> list[str]:
        """Say whether the file or folder can be listed and read."""
        try:
            with closing(self._api):
                start = self._resolve_shortcut(self._api.file(self._id))
                page = next(self._list_pages(None), ListingPage([], ""))
        except QuireError as error:
            return [str(error)]
        kind = "folder" if start["mimeType"] == _FOLDER else "file"
        sentences = [
            f"gdrive:{self._id}: the {kind} {printable_name(start['name'])!r} can be listed."
        ]
        sentences += [f"{each.uri}: left out, {each.reason}." for each in page.skipped[:10]]
        return sentences

    def _page(self, files: list[dict[str, Any]], crawl: _Crawl, folder: str) -> ListingPage:
        items: list[Item] = []
        skipped: list[Skipped] = []
        inside: list[_OpenFolder] = []
        for each in files:
            found = self._classify(each, crawl, folder)
            if isinstance(found, Item):
                items.append(found)
            elif isinstance(found, Skipped):
                skipped.append(found)
            elif found is not None:
                inside.append(found)
        # Subfolders wait until this folder's next page was read: page tokens expire.
        crawl.open[:0] = reversed(inside)
        return ListingPage(items, crawl.text(), skipped)

    def _classify(
        self, file: dict[str, Any], crawl: _Crawl, folder: str
    ) -> Item | Skipped | _OpenFolder | None:
        """Classify a file: an item, skipped with a reason, a folder, or excluded."""
        name = printable_name(file["name"])
        path = f"{folder}/{name}" if folder else name
        uri = f"gdrive:{file['id']}"
        if file["mimeType"] == _SHORTCUT:
            if not self._options.follow_links:
                return Skipped(uri, f"{name!r} is a shortcut, which may lead out of the folder")
            try:
                file = self._resolve_shortcut(file)
            except Gone:
                return Skipped(uri, f"the target of the shortcut {name!r} does not exist")
            if file["mimeType"] == _FOLDER:
                if file["id"] in crawl.followed:
                    return Skipped(uri, f"the shortcut {name!r} points to a folder listed already")
                crawl.followed.append(file["id"])
        if file["mimeType"] == _FOLDER:
            if self._is_excluded and self._is_excluded(path):
                return None
            return _OpenFolder(file["id"], path, file.get("driveId"))
        found = _item(file, name, folder)
        return found if isinstance(found, Skipped) or self._is_included(path) else None

    def _resolve_shortcut(self, file: dict[str, Any]) -> dict[str, Any]:
        if file["mimeType"] != _SHORTCUT:
            return file
        # Shortcuts to shortcuts do not exist, so one step is enough.
        return self._api.file(file["shortcutDetails"]["targetId"])


def _item(file: dict[str, Any], name: str, folder: str) -> Item | Skipped:
    uri, kind = f"gdrive:{file['id']}", str(file["mimeType"])
    if not file.get("capabilities", {}).get("canDownload", True):
        return Skipped(uri, f"{name!r} may not be downloaded: its owner disabled downloads")
    mtime = datetime.fromisoformat(file["modifiedTime"]).timestamp()
    if kind in _EXPORTS:
        media_type, suffix = _EXPORTS[kind]
        name = name if name.lower().endswith(suffix) else name + suffix
        return Item(uri, name, mtime=mtime, media_type=media_type, folder=folder)
    if kind.startswith(_OWN) or "size" not in file:
        return Skipped(uri, f"{name!r} is {kind}, which has no bytes to download")
    return Item(
        uri,
        name,
        int(file["size"]),
        mtime,
        md5=file.get("md5Checksum"),
        media_type=kind,
        version=file.get("headRevisionId"),
        folder=folder,
        sha256=file.get("sha256Checksum"),
    )
