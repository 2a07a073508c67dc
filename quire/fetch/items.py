"""Records of listing and fetching, and the `Source` protocol.

An item is identified by its URI. Its fingerprint is made of the metadata that the source lists;
while it stays the same, the file need not be fetched again.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from quire.fetch.permission import Forbidden

Progress = Callable[[int, int | None], None]
Check = Callable[[], None]

PAGE_ITEMS = 1_000  #: Maximum number of items on one page of a listing.


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


def fingerprint(item: Item) -> str:
    """Join the metadata that changes with the file's content, for comparison before any read."""
    known = (item.size, item.mtime, item.etag, item.md5, item.version)
    return "|".join(["" if value is None else str(value) for value in known])


class Skipped(NamedTuple):
    """An entry that a listing leaves out, and why."""

    uri: str
    reason: str


class ListingPage(NamedTuple):
    """One page of a listing; `cursor` resumes after it."""

    items: list[Item]
    cursor: str
    skipped: list[Skipped] = []  # noqa: RUF012  never mutated


class Fetched(NamedTuple):
    """The verified bytes of an item: size, hashes, and which checks they passed."""

    size: int
    sha256: str
    md5: str | None = None
    etag: str | None = None
    media_type: str | None = None
    checked: str = "size"
    resumed_from: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one transfer, in bytes and seconds."""

    chunk_bytes: int = 8 << 20
    chunk_seconds: float = 120.0
    delays: tuple[float, ...] = (2.0, 4.0, 8.0, 16.0, 32.0)
    #: If the server asks for a longer pause, the task is put off instead of waiting in the worker.
    max_wait: float = 120.0
    total_seconds: float = 6 * 3600.0
    redirects: int = 5


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a source, whatever its type."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    credentials: Path | None = None
    #: Of buckets, by the names of their variables; None: those of the environment.
    bucket_credentials: Mapping[str, str] | None = None
    endpoint: str = ""
    allow_private: bool = False
    #: Private networks that are allowed, such as 10.1.0.0/16.
    allow_networks: tuple[str, ...] = ()
    #: Hosts, with or without a port, that may have any address.
    allow_hosts: frozenset[str] = frozenset()
    #: Files and folders that are never opened.
    forbidden: Forbidden = Forbidden()  # noqa: RUF009  immutable
    #: Folders outside of which nothing is opened, without symbolic links; None: anywhere.
    roots: tuple[str, ...] | None = None
    #: Follow symbolic links inside folders, and shortcuts of Google Drive, out of them.
    follow_links: bool = False
    #: Errors tell neither addresses nor what exists on this machine.
    is_discreet: bool = False
    max_bytes: int = 4 << 30
    limits: Limits = field(default_factory=Limits)
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    #: Told what a request waits for and for how long, once a second.
    say: Callable[[str], None] = lambda _: None


class Source(Protocol):
    """Lists files and downloads their bytes."""

    def pages(self, after: str | None = None) -> Iterator[ListingPage]:
        """List in a stable order, from the start or after a cursor."""
        ...

    def fetch(self, item: Item, part: Path, progress: Progress, check: Check) -> Fetched:
        """Download the verified bytes of an item to `part`."""
        ...

    def doctor(self) -> list[str]:
        """Say in sentences whether the source can be listed and read, and why not."""
        ...
