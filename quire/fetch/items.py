"""What a source lists and what a fetch brings: plain records, and the contract of a source.

An item is known by its URI. `seen` is what its source tells of it without a byte being read;
the same text later means that nothing has to be fetched again.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

Progress = Callable[[int, int | None], None]
Check = Callable[[], None]

PAGE = 1_000  #: Most items of one page of a listing.


class Item(NamedTuple):
    """One file as its source lists it."""

    uri: str
    name: str
    size: int | None = None
    mtime: float | None = None
    etag: str | None = None
    md5: str | None = None
    media_type: str | None = None
    version: str | None = None
    folder: str = ""
    sha256: str | None = None


def seen(item: Item) -> str:
    """Word what tells one state of the item from another, to be compared before any read."""
    known = (item.size, item.mtime, item.etag, item.md5, item.version)
    return "|".join(["" if value is None else str(value) for value in known])


class Skipped(NamedTuple):
    """Something a listing met and leaves out, and why."""

    uri: str
    reason: str


class Listed(NamedTuple):
    """One page of a listing; giving `cursor` back continues after it."""

    items: list[Item]
    cursor: str
    skipped: list[Skipped] = []  # noqa: RUF012  never changed in place


class Fetched(NamedTuple):
    """The verified bytes of an item: how many, their hashes and how far they were checked."""

    size: int
    sha256: str
    md5: str | None = None
    etag: str | None = None
    media_type: str | None = None
    checked: str = "size"
    resumed_from: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one transfer, in bytes and seconds."""

    chunk_bytes: int = 8 << 20
    chunk_seconds: float = 120.0
    delays: tuple[float, ...] = (2.0, 4.0, 8.0, 16.0, 32.0)
    #: A server that asks for a longer pause gives the worker back instead.
    longest_wait: float = 120.0
    total_seconds: float = 6 * 3600.0
    redirects: int = 5


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What may be said of a source, whatever its kind."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    credentials: Path | None = None
    endpoint: str = ""
    allow_private: bool = False
    #: Networks that may be reached although they are private, such as 10.1.0.0/16.
    allow_networks: tuple[str, ...] = ()
    max_bytes: int = 4 << 30
    limits: Limits = field(default_factory=Limits)
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


class Source(Protocol):
    """A place that lists files and gives their bytes."""

    def pages(self, after: str | None = None) -> Iterator[Listed]:
        """List in a stable order, from the start or from behind a cursor."""
        ...

    def fetch(self, item: Item, part: Path, progress: Progress, check: Check) -> Fetched:
        """Bring the verified bytes of an item to `part`."""
        ...

    def doctor(self) -> list[str]:
        """Say in sentences whether the source can be listed and read, and if not, why."""
        ...
