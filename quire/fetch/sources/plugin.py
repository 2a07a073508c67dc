"""Sources added by plugins: the plugin lists items and yields bytes, this module does the rest.

Items are sorted by URI, so an interrupted listing resumes after the last one whatever the plugin's
order. A partial download is resumed only if the item has a hash of the whole file to verify it.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.errors import FetchFailed, Gone, Permanent, QuireError, SourceRefused, Transient
from quire.fetch.http_client import RetryableError
from quire.fetch.items import (
    PAGE_ITEMS,
    Check,
    Fetched,
    Item,
    ListingPage,
    Progress,
    SourceOptions,
    fingerprint,
)
from quire.fetch.names import printable_name, safe_name
from quire.fetch.sources.globs import path_filter
from quire.fetch.transfer import part_file
from quire.fetch.transfer.part_file import PartFile
from quire.fetch.transfer.retry import RetryBudget
from quire.fetch.transfer.verify import refuse_size, verify
from quire.model.contracts import SourceKind

_END = object()


class PluginSource:
    """The files that a plugin's class lists at a URL."""

    def __init__(self, url: str, kind: SourceKind, options: SourceOptions) -> None:
        self._url = url
        self._kind = kind
        self._options = options
        self._is_included = path_filter(options.include, options.exclude)

    def pages(self, after: str | None = None) -> Iterator[ListingPage]:
        """List in URI order; the cursor is the last URI."""
        items = [item for item in self._list_items() if after is None or item.uri > after]
        for start in range(0, len(items), PAGE_ITEMS):
            some = items[start : start + PAGE_ITEMS]
            yield ListingPage(some, some[-1].uri)

    def fetch(self, item: Item, part: Path, progress: Progress, check: Check) -> Fetched:
        """Download the verified bytes of an item to `part`, resuming an earlier run."""
        max_bytes = self._options.max_bytes
        if item.size is not None and item.size > max_bytes:
            raise part_file.too_large(item.name, item.size, max_bytes)
        with closing(PartFile(part, item.name, keep=_resumable_bytes(item, part))) as file:
            return _PluginDownload(
                self._new_plugin, item, file, self._options, progress, check
            ).finish()

    def doctor(self) -> list[str]:
        """Say whether the files can be listed and the first one read."""
        try:
            items = self._list_items()
        except QuireError as error:
            return [str(error)]
        lines = [f"{self._url}: can be listed; files found: {len(items):,}."]
        return [*lines, *map(self._try_read, items[:1])]

    def _try_read(self, item: Item) -> str:
        try:
            with _translate_errors(item.name):
                next(iter(self._new_plugin().read(item, 0)), None)
        except (QuireError, RetryableError) as error:
            return f"{item.name}: cannot be read ({error})."
        return f"{item.name}: can be read."

    def _new_plugin(self) -> Any:
        with _translate_errors(self._url):
            return self._kind.maker()

    def _list_items(self) -> list[Item]:
        found: dict[str, Item] = {}
        try:
            with _translate_errors(self._url):
                for item in self._new_plugin().items(self._url):
                    item = self._validate(item)
                    if self._is_included(f"{item.folder}/{item.name}".lstrip("/")):
                        found[item.uri] = item
        except RetryableError as error:
            raise FetchFailed(
                f"{self._url}: cannot be listed now ({error}).",
                retry_after=error.retry_after,
            ) from error
        return [found[uri] for uri in sorted(found)]

    def _validate(self, item: Any) -> Item:
        scheme = self._kind.name
        if not isinstance(item, Item):
            raise Permanent(
                f"source {scheme}: listed an object of type {type(item).__name__}. Fix the plugin: "
                "yield quire.Item."
            )
        # A foreign URI would let this source replace another source's document.
        if not item.uri.startswith(f"{scheme}:"):
            raise Permanent(
                f"source {scheme}: listed the URI {item.uri!r}. Fix the plugin: every URI must "
                f"start with {scheme}: and be unique."
            )
        return item._replace(name=safe_name(item.name), folder=printable_name(item.folder))


@dataclass
class _PluginDownload:
    make: Callable[[], Any]
    item: Item
    part: PartFile
    options: SourceOptions
    progress: Progress
    check: Check

    def __post_init__(self) -> None:
        self.retries = RetryBudget(self.item.name, self.options, self.check)
        self.resumed_from = self.part.size
        self.furthest = self._chunks()

    def finish(self) -> Fetched:
        """Read to the end, with retries, then verify the file."""
        while True:
            try:
                for piece in self._pieces():
                    self._write(piece)
                break
            except RetryableError as error:
                if not _has_hash(self.item):
                    self.part.clear()
                    self.resumed_from = 0
                self._note()
                self.retries.wait(error, f"{self.part.size:,} bytes have arrived.")
        part, item = self.part, self.item
        checked = verify(part, item, None, {})
        part_file.note_path(part.path).unlink(missing_ok=True)
        return Fetched(
            part.size, part.sha256, part.md5, item.etag, item.media_type, checked,
            self.resumed_from,
        )  # fmt: skip

    def _pieces(self) -> Iterator[bytes]:
        """Yield the plugin's bytes; only its own exceptions are translated."""
        with _translate_errors(self.item.name):
            pieces = iter(self.make().read(self.item, self.part.size))
        while True:
            self.check()
            with _translate_errors(self.item.name):
                piece = next(pieces, _END)
            if piece is _END:
                return
            if not isinstance(piece, bytes):
                raise Permanent(
                    f"{self.item.name}: its source yielded an object of type "
                    f"{type(piece).__name__}. Fix the plugin: yield bytes."
                )
            yield piece

    def _write(self, piece: bytes) -> None:
        part, item = self.part, self.item
        self.retries.check_total_time()
        size = part.size + len(piece)
        part.refuse_above(self.options.max_bytes, size)
        if item.size is not None and size > item.size:
            refuse_size(part, item, item.size, size)
        part.write(piece)
        self.progress(part.size, item.size)
        if self._chunks() > self.furthest:
            # Reset retries only on new progress: a download that restarts must end some day.
            self.furthest = self._chunks()
            self.retries.reset()
            self._note()

    def _chunks(self) -> int:
        return self.part.size // self.options.limits.chunk_bytes

    def _note(self) -> None:
        """Record how many bytes are synced to disk, and of which item."""
        if _has_hash(self.item):
            self.part.sync()
            part_file.write_note(self.part.path, {**_identity(self.item), "kept": self.part.size})


def _has_hash(item: Item) -> bool:
    return bool(item.md5 or item.sha256)


def _identity(item: Item) -> dict[str, object]:
    return {"uri": part_file.digest_of(item.uri), "seen": fingerprint(item), "sha256": item.sha256}


def _resumable_bytes(item: Item, path: Path) -> int:
    """Return how many bytes an earlier run left of the same version of an item."""
    note = part_file.read_note(path)
    kept = note.pop("kept", 0)
    is_ours = _has_hash(item) and note == _identity(item) and path.is_file()
    return kept if is_ours and isinstance(kept, int) else 0


@contextmanager
def _translate_errors(subject: str) -> Iterator[None]:
    """Translate a plugin's exceptions; `RetryableError` may be fixed by a retry."""
    try:
        yield
    except Transient as error:
        raise RetryableError(str(error) or "it failed", error.retry_after) from error
    except (QuireError, RetryableError):
        raise
    except FileNotFoundError as error:
        raise Gone(f"{subject}: not found ({error}).") from error
    except PermissionError as error:
        raise SourceRefused(f"{subject}: access denied ({error}).") from error
    except OSError as error:
        raise RetryableError(f"{type(error).__name__}: {error}") from error
    except Exception as error:
        raise FetchFailed(
            f"{subject}: its source failed ({type(error).__name__}: {error})."
        ) from error
