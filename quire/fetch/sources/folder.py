"""Local files and folders as a source.

A folder is walked in path order and the cursor is the path of the last file, so an interrupted
walk resumes after it without reading the folders before it.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from quire.errors import FetchFailed, Gone, QuireError, SourceRefused
from quire.fetch.items import (
    PAGE_ITEMS,
    Check,
    Fetched,
    Item,
    ListingPage,
    Progress,
    Skipped,
    SourceOptions,
)
from quire.fetch.names import file_path, file_uri, printable_name
from quire.fetch.sources.globs import is_glob, matcher
from quire.fetch.transfer.part_file import CHUNK_BYTES, receive, remove, too_large

_Keys = tuple[bytes, ...]
_Found = tuple[_Keys, Item | Skipped]
_SPECIAL_FILES = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
_SPECIAL_FILES |= {stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


class FolderSource:
    """A file, a folder with everything below it, or the files that match a pattern."""

    def __init__(self, path: str, options: SourceOptions) -> None:
        self._root, pattern = _split_pattern(Path(path).expanduser())
        self._options = options
        self._include = matcher([*options.include, *([pattern] if pattern else [])])
        if pattern and options.include:
            first, second = matcher([pattern]), matcher(options.include)
            self._include = lambda path: bool(first and first(path) and second and second(path))
        self._exclude = matcher(options.exclude)

    def pages(self, after: str | None = None) -> Iterator[ListingPage]:
        """List in path order; the cursor is the path of the last file."""
        begin = tuple(unquote_to_bytes(after).split(b"/")) if after else ()
        is_folder = self._root.is_dir()
        walk = self._walk(str(self._root), (), begin) if is_folder else self._single_file()
        items: list[Item] = []
        skipped: list[Skipped] = []
        keys: _Keys = ()
        for keys, found in walk:
            if isinstance(found, Item):
                items.append(found)
            else:
                skipped.append(found)
            if len(items) + len(skipped) == PAGE_ITEMS:
                yield ListingPage(items, _cursor(keys), skipped)
                items, skipped = [], []
        if items or skipped:
            yield ListingPage(items, _cursor(keys), skipped)

    def fetch(self, item: Item, part: Path, progress: Progress, check: Check) -> Fetched:
        """Copy a file; a file that changes during the copy is an error."""
        path = file_path(item.uri)
        max_bytes = self._options.max_bytes

        # A plain open would block forever if a named pipe replaced the file.
        def nonblocking(path: str, flags: int) -> int:
            return os.open(path, flags | os.O_NONBLOCK)

        try:
            with open(path, "rb", buffering=0, opener=nonblocking) as file:
                before = os.fstat(file.fileno())
                _require_regular(item.name, before.st_mode)
                if before.st_size > max_bytes:
                    raise too_large(item.name, before.st_size, max_bytes)
                fetched = receive(
                    iter(lambda: file.read(CHUNK_BYTES), b""),
                    part,
                    item.name,
                    max_bytes=max_bytes,
                    progress=progress,
                    check=check,
                    total=before.st_size,
                )
            _require_same(item.name, before, path.stat(), fetched.size)
        except FileNotFoundError:
            remove(part)
            raise Gone(f"{item.name}: the file no longer exists in {path.parent}.") from None
        except PermissionError:
            raise SourceRefused(
                f"{item.name}: no permission to read {path}. Grant it to the user that runs Quire."
            ) from None
        except FetchFailed:
            remove(part)
            raise
        except OSError as error:
            remove(part)
            raise FetchFailed(
                f"{item.name}: cannot be read from {path.parent} ({error.strerror})."
            ) from error
        return fetched

    def doctor(self) -> list[str]:
        """Say in sentences whether the files can be listed and read."""
        try:
            page = next(self.pages(), ListingPage([], ""))
        except QuireError as error:
            return [str(error)]
        count = f"{len(page.items):,}" + (" or more" if len(page.items) >= PAGE_ITEMS else "")
        sentences = [f"{self._root}: can be listed; files found: {count}."]
        sentences += [f"{each.uri}: left out, {each.reason}." for each in page.skipped[:10]]
        if page.items and not os.access(file_path(page.items[0].uri), os.R_OK):
            sentences.append(f"{page.items[0].name}: cannot be read (no permission).")
        return sentences

    def _single_file(self) -> Iterator[_Found]:
        path = self._root
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise Gone(f"{path}: there is no such file or folder. Check the path.") from None
        except OSError as error:
            raise SourceRefused(f"{path}: cannot be read ({error.strerror}).") from None
        _require_regular(str(path), found.st_mode)
        yield (os.fsencode(path.name),), _item(file_uri(str(path)), path.name, found, "")

    def _may_enter(self, path: str, name: str) -> bool:
        is_visible = self._options.hidden or not name.startswith(".")
        return is_visible and not (self._exclude and self._exclude(path))

    def _is_included(self, path: str, name: str) -> bool:
        is_temporary = name.startswith("~$") or name.endswith(".part")
        if is_temporary or not self._may_enter(path, name):
            return False
        return self._include is None or self._include(path)

    def _walk(
        self, folder: str, keys: _Keys, after: _Keys, *, linked: bool = False
    ) -> Iterator[_Found]:
        """Yield the entries after a cursor relative to the folder: depth-first, in byte order."""
        inside = "/".join(printable_name(os.fsdecode(key)) for key in keys)
        try:
            with os.scandir(folder) as listing:
                entries = sorted((os.fsencode(entry.name), entry) for entry in listing)
        except OSError as error:
            yield keys, Skipped(file_uri(folder), f"folder cannot be read ({error.strerror})")
            return
        prefix = file_uri(folder).removesuffix("/") + "/"
        for key, entry in entries:
            if after and key < after[0]:
                continue
            passed = after[1:] if after and key == after[0] else ()
            path = f"{inside}/{entry.name}" if inside else entry.name
            if _is_folder(entry):
                if self._may_enter(path, entry.name):
                    yield from self._enter(entry, (*keys, key), passed, linked=linked)
            elif not (after and key == after[0]) and self._is_included(path, entry.name):
                uri = prefix + quote_from_bytes(key)
                yield (*keys, key), _classify(entry, uri, inside)

    def _enter(
        self, entry: os.DirEntry[str], keys: _Keys, after: _Keys, *, linked: bool
    ) -> Iterator[_Found]:
        if entry.is_symlink():
            if reason := self._why_not_followed(entry, linked=linked):
                yield keys, Skipped(file_uri(entry.path), reason)
                return
            linked = True
        yield from self._walk(entry.path, keys, after, linked=linked)

    def _why_not_followed(self, entry: os.DirEntry[str], *, linked: bool) -> str:
        """Return why a symlink is skipped: following only one out of the tree avoids cycles."""
        target, root = os.path.realpath(entry.path), os.path.realpath(self._root)
        if _is_below(target, root):
            return "a symlink to a folder that is listed at its own path"
        if _is_below(root, target):
            return "a symlink to a parent folder"
        return "a symlink to a folder inside a symlinked folder" if linked else ""


def _classify(entry: os.DirEntry[str], uri: str, inside: str) -> Item | Skipped:
    try:
        found = entry.stat()
    except OSError as error:
        is_dangling = entry.is_symlink()
        return Skipped(uri, "a dangling symlink" if is_dangling else str(error.strerror))
    if not stat.S_ISREG(found.st_mode):
        kind = _SPECIAL_FILES.get(stat.S_IFMT(found.st_mode), "not a file")
        return Skipped(uri, f"{kind}, not a regular file")
    return _item(uri, entry.name, found, inside)


def _item(uri: str, name: str, found: os.stat_result, inside: str) -> Item:
    return Item(uri, printable_name(name), found.st_size, found.st_mtime, folder=inside)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _require_regular(name: str, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _SPECIAL_FILES.get(stat.S_IFMT(mode), "not a file")
        raise SourceRefused(f"{name}: is {kind}. Only regular files can be ingested.")


def _require_same(name: str, before: os.stat_result, after: os.stat_result, got: int) -> None:
    if before.st_ino != after.st_ino or before.st_mtime_ns != after.st_mtime_ns:
        raise FetchFailed(f"{name}: changed while it was read.")
    if got != before.st_size or got != after.st_size:
        raise FetchFailed(
            f"{name}: changed while it was read (expected {before.st_size:,} bytes, got {got:,})."
        )


def _split_pattern(path: Path) -> tuple[Path, str]:
    """Split a path with wildcards into the folder before them and the pattern."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  keeps symlinks unresolved
    if absolute.exists() or not is_glob(str(absolute)):
        return absolute, ""
    parts = absolute.parts
    first = next(number for number, each in enumerate(parts) if is_glob(each))
    # The leading slash keeps `*.pdf` in this folder: without it, it matches at any depth.
    return Path(*parts[:first]), "/" + "/".join(parts[first:])


def _cursor(keys: _Keys) -> str:
    return quote_from_bytes(b"/".join(keys))
