"""Local files and folders as a source.

A folder is walked in path order and the cursor is the path of the last file, so an interrupted
walk resumes after it without reading the folders before it.

The path that a job names is resolved once, and judged. Below it nothing is followed: a symbolic
link is left out, or followed as far as the operator allows with `follow_links`.
"""

import errno
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
from quire.fetch.permission import is_below
from quire.fetch.sources import beneath
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
        self._real: str | None = None
        self._include = matcher([*options.include, *([pattern] if pattern else [])])
        if pattern and options.include:
            first, second = matcher([pattern]), matcher(options.include)
            self._include = lambda path: bool(first and first(path) and second and second(path))
        self._exclude = matcher(options.exclude)

    def pages(self, after: str | None = None) -> Iterator[ListingPage]:
        """List in path order; the cursor is the path of the last file."""
        begin = tuple(unquote_to_bytes(after).split(b"/")) if after else ()
        walk = self._walk_root(begin) if Path(self._judged()).is_dir() else self._single_file()
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
        path, max_bytes = file_path(item.uri), self._options.max_bytes
        try:
            with beneath.parent_of(self._judged_below(str(path))) as (folder, name):
                with os.fdopen(beneath.file(name, folder), "rb", buffering=0) as file:
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
                now = os.stat(name, dir_fd=folder, follow_symlinks=False)
            _require_same(item.name, before, now, fetched.size)
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
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise SourceRefused(
                    f"{item.name}: a symbolic link stands where it was listed. It is not followed."
                ) from None
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

    def _judged(self) -> str:
        """Return the root without symbolic links, if it may be opened."""
        if self._real is None:
            self._real = self._judge(os.path.realpath(self._root))
        return self._real

    def _judge(self, real: str) -> str:
        roots, why = self._options.roots, self._options.forbidden.why(real)
        if roots is not None and (why or not any(is_below(real, each) for each in roots)):
            raise SourceRefused(f"{self._root}: is not granted to this tenant.")
        if why:
            raise SourceRefused(f"{self._root}: {why}. It cannot be a source.")
        return real

    def _judged_below(self, path: str) -> str:
        """Return where a listed file is, without symbolic links, if it may be opened."""
        root = str(self._root)
        if not is_below(path, root):
            raise SourceRefused(f"{path}: is not below {root}, its source.")
        if self._options.follow_links:
            return self._judge(os.path.realpath(path))
        return self._judge(self._judged() + path[len(root.rstrip("/")) :].rstrip("/"))

    def _single_file(self) -> Iterator[_Found]:
        path = self._root
        try:
            with beneath.parent_of(self._judged()) as (folder, name):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
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

    def _walk_root(self, after: _Keys) -> Iterator[_Found]:
        root = str(self._root)
        try:
            with beneath.folder(self._judged()) as opened:
                yield from self._walk(opened, root, (), after)
        except OSError as error:
            yield (), Skipped(file_uri(root), f"folder cannot be read ({error.strerror})")

    def _walk(
        self, opened: int, folder: str, keys: _Keys, after: _Keys, *, linked: bool = False
    ) -> Iterator[_Found]:
        """Yield the entries after a cursor relative to the folder: depth-first, in byte order."""
        inside = "/".join(printable_name(os.fsdecode(key)) for key in keys)
        try:
            with os.scandir(opened) as listing:
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
            place = f"{folder.rstrip('/')}/{entry.name}"
            uri = prefix + quote_from_bytes(key)
            if self._is_folder(entry):
                if self._may_enter(path, entry.name):
                    yield from self._enter(opened, entry, place, (*keys, key), passed, linked)
            elif not (after and key == after[0]) and self._is_included(path, entry.name):
                yield (*keys, key), self._classify(entry, place, uri, inside)

    def _is_folder(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir(follow_symlinks=self._options.follow_links)
        except OSError:
            return False

    def _enter(
        self,
        opened: int,
        entry: os.DirEntry[str],
        place: str,
        keys: _Keys,
        after: _Keys,
        linked: bool,
    ) -> Iterator[_Found]:
        real = place if entry.is_symlink() else None
        if real is not None:
            real = os.path.realpath(place)
            if reason := self._why_not_followed(real, linked=linked):
                yield keys, Skipped(file_uri(place), reason)
                return
            linked = True
        if why := self._options.forbidden.why(real or self._real_of(place, linked=linked)):
            yield keys, Skipped(file_uri(place), f"a folder that {why}")
            return
        try:
            # A link is opened where it led a moment ago, and only there.
            with beneath.folder(real or entry.name, None if real else opened) as inner:
                yield from self._walk(inner, place, keys, after, linked=linked)
        except OSError as error:
            yield keys, Skipped(file_uri(place), f"folder cannot be read ({error.strerror})")

    def _real_of(self, place: str, *, linked: bool) -> str:
        """Return a listed path without symbolic links."""
        if linked:
            return os.path.realpath(place)
        return self._judged() + place[len(str(self._root).rstrip("/")) :]

    def _why_not_followed(self, target: str, *, linked: bool) -> str:
        """Return why a symlink is skipped: following only one out of the tree avoids cycles."""
        root = self._judged()
        if is_below(target, root):
            return "a symlink to a folder that is listed at its own path"
        if is_below(root, target):
            return "a symlink to a parent folder"
        return "a symlink to a folder inside a symlinked folder" if linked else ""

    def _classify(
        self, entry: os.DirEntry[str], place: str, uri: str, inside: str
    ) -> Item | Skipped:
        follows = self._options.follow_links
        is_link = entry.is_symlink()
        if is_link and not follows:
            return Skipped(uri, "a symbolic link, which is not followed without --follow-links")
        try:
            found = entry.stat(follow_symlinks=follows)
        except OSError as error:
            return Skipped(uri, "a dangling symlink" if is_link else str(error.strerror))
        if not stat.S_ISREG(found.st_mode):
            kind = _SPECIAL_FILES.get(stat.S_IFMT(found.st_mode), "not a file")
            return Skipped(uri, f"{kind}, not a regular file")
        if why := self._options.forbidden.why(self._real_of(place, linked=follows)):
            return Skipped(uri, f"a file that {why}")
        return _item(uri, entry.name, found, inside)


def _item(uri: str, name: str, found: os.stat_result, inside: str) -> Item:
    return Item(uri, printable_name(name), found.st_size, found.st_mtime, folder=inside)


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
