"""Sources that plugins add: the plugin lists and yields bytes, all else is done here.

Items are sorted by URI, so that a listing that was killed goes on behind the last one whatever
the plugin's order is. Bytes that have arrived are only added to where a hash of the whole tells
whether they belong together.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quire.errors import FetchFailed, Gone, Permanent, QuireError, SourceRefused, Transient
from quire.fetch.http_client import Broken
from quire.fetch.items import PAGE, Check, Fetched, Item, Listed, Progress, SourceOptions, seen
from quire.fetch.names import safe_name, shown
from quire.fetch.sources.globs import chooser
from quire.fetch.transfer import part_file
from quire.fetch.transfer.part_file import Part
from quire.fetch.transfer.retry import Patience
from quire.fetch.transfer.verify import refuse_size, verify
from quire.model.contracts import SourceKind

_END = object()


class PluginSource:
    """What a plugin's class lists at a URL."""

    def __init__(self, url: str, kind: SourceKind, options: SourceOptions) -> None:
        self._url = url
        self._kind = kind
        self._options = options
        self._wanted = chooser(options.include, options.exclude)

    def pages(self, after: str | None = None) -> Iterator[Listed]:
        """List in the order of URIs; the cursor is the last one."""
        items = [item for item in self._listed() if after is None or item.uri > after]
        for start in range(0, len(items), PAGE):
            some = items[start : start + PAGE]
            yield Listed(some, some[-1].uri)

    def fetch(self, item: Item, part: Path, progress: Progress, check: Check) -> Fetched:
        """Bring the verified bytes of an item to `part`; what an earlier run left is used."""
        most = self._options.max_bytes
        if item.size is not None and item.size > most:
            raise part_file.too_large(item.name, item.size, most)
        with Part(part, item.name, keep=_kept(item, part)) as file:
            return _Reading(self._made, item, file, self._options, progress, check).finish()

    def doctor(self) -> list[str]:
        """Say whether the files can be listed, and the first of them read."""
        try:
            items = self._listed()
        except QuireError as error:
            return [str(error)]
        said = [f"{self._url}: can be listed; files found: {len(items):,}."]
        return [*said, *map(self._tried, items[:1])]

    def _tried(self, item: Item) -> str:
        try:
            with _plain_reasons(item.name):
                next(iter(self._made().read(item, 0)), None)
        except (QuireError, Broken) as error:
            return f"{item.name}: cannot be read ({error})."
        return f"{item.name}: can be read."

    def _made(self) -> Any:
        with _plain_reasons(self._url):
            return self._kind.maker()

    def _listed(self) -> list[Item]:
        found: dict[str, Item] = {}
        try:
            with _plain_reasons(self._url):
                for item in self._made().items(self._url):
                    kept = self._checked(item)
                    if self._wanted(f"{kept.folder}/{kept.name}".lstrip("/")):
                        found[kept.uri] = kept
        except Broken as broken:
            raise FetchFailed(
                f"{self._url}: cannot be listed now ({broken}). The work is tried again later.",
                retry_after=broken.retry_after,
            ) from broken
        return [found[uri] for uri in sorted(found)]

    def _checked(self, item: Any) -> Item:
        scheme = self._kind.name
        if not isinstance(item, Item):
            raise Permanent(
                f"source {scheme} listed an object of type {type(item).__name__}. Mend the plugin: "
                "yield quire.Item."
            )
        # Another source's name for a file would let this one take its place in the index.
        if not item.uri.startswith(f"{scheme}:"):
            raise Permanent(
                f"source {scheme} listed the URI {item.uri!r}. Mend the plugin: begin every URI "
                f"with {scheme}: and give each file its own."
            )
        return item._replace(name=safe_name(item.name), folder=shown(item.folder))


class _Reading:
    """The state of one transfer from a plugin."""

    def __init__(
        self,
        make: Callable[[], Any],
        item: Item,
        part: Part,
        options: SourceOptions,
        progress: Progress,
        check: Check,
    ) -> None:
        self.make, self.item, self.part, self.options = make, item, part, options
        self.progress, self.check = progress, check
        self.patience = Patience(item.name, options, check)
        self.resumed_from = part.size
        self.furthest = self._chunks()

    def finish(self) -> Fetched:
        """Read until the end has come, then check the whole."""
        while not self._has_come():
            pass
        part, item = self.part, self.item
        checked = verify(part, item, None, {})
        part_file.note_of(part.path).unlink(missing_ok=True)
        return Fetched(
            part.size, part.sha256, part.md5, item.etag, item.media_type, checked,
            self.resumed_from,
        )  # fmt: skip

    def _has_come(self) -> bool:
        """Read on behind what is here; tells whether the end came, or another try is due."""
        try:
            for piece in self._pieces():
                self._write(piece)
        except Broken as broken:
            if not _is_checkable(self.item):
                self.part.clear()
                self.resumed_from = 0
            self._bear(broken)
            return False
        return True

    def _pieces(self) -> Iterator[bytes]:
        """Yield what the plugin does; only what it raises is worded as its fault."""
        with _plain_reasons(self.item.name):
            pieces = iter(self.make().read(self.item, self.part.size))
        while True:
            self.check()
            with _plain_reasons(self.item.name):
                piece = next(pieces, _END)
            if piece is _END:
                return
            if not isinstance(piece, bytes):
                raise Permanent(
                    f"{self.item.name}: its source yielded an object of type "
                    f"{type(piece).__name__}. Mend the plugin: yield bytes."
                )
            yield piece

    def _write(self, piece: bytes) -> None:
        part, item, most = self.part, self.item, self.options.max_bytes
        self.patience.require_time()
        size = part.size + len(piece)
        if size > most:
            part_file.remove(part.path)
            raise part_file.too_large(item.name, size, most)
        if item.size is not None and size > item.size:
            refuse_size(part, item, item.size, size)
        part.write(piece)
        self.progress(part.size, item.size)
        if self._chunks() > self.furthest:
            # What begins anew after each cut must get further, or the tries never end.
            self.furthest = self._chunks()
            self.patience.renew()
            self._note()

    def _chunks(self) -> int:
        return self.part.size // self.options.limits.chunk_bytes

    def _bear(self, broken: Broken) -> None:
        try:
            self.patience.bear(broken, f"{self.part.size:,} bytes have arrived.")
        except FetchFailed:
            self._note()
            raise

    def _note(self) -> None:
        """Say how much is safe on the disk, and of which bytes."""
        if _is_checkable(self.item):
            self.part.sync()
            part_file.write_note(self.part.path, {**_whose(self.item), "kept": self.part.size})


def _is_checkable(item: Item) -> bool:
    return bool(item.md5 or item.sha256)


def _whose(item: Item) -> dict[str, object]:
    return {"uri": item.uri, "seen": seen(item), "sha256": item.sha256}


def _kept(item: Item, path: Path) -> int:
    """Return how many bytes an earlier run left of the same state of an item."""
    note = part_file.read_note(path)
    kept = note.pop("kept", 0)
    is_ours = _is_checkable(item) and note == _whose(item) and path.is_file()
    return kept if is_ours and isinstance(kept, int) else 0


@contextmanager
def _plain_reasons(subject: str) -> Iterator[None]:
    """Word what a plugin raises; `Broken` is what another try may mend."""
    try:
        yield
    except Transient as error:
        raise Broken(str(error) or "it failed", error.retry_after) from error
    except (QuireError, Broken):
        raise
    except FileNotFoundError as error:
        raise Gone(f"{subject}: is not there ({error}).") from error
    except PermissionError as error:
        raise SourceRefused(f"{subject}: access is refused ({error}).") from error
    except OSError as error:
        raise Broken(f"{type(error).__name__}: {error}") from error
    except Exception as error:
        raise FetchFailed(
            f"{subject}: its source failed ({type(error).__name__}: {error}). The work is tried "
            "again later."
        ) from error
