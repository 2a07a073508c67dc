"""Zip archives that may be hostile: refused before any library unpacks them.

A file of a few kilobytes can unpack to terabytes, and an entity in its XML to gigabytes. The sizes
in the directory of the archive are believed here, since `zipfile` never reads beyond them.
"""

import contextlib
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from quire.errors import Unreadable

MOST_BYTES = 1 << 30
MOST_RATIO = 200
MOST_MEMBERS = 100_000
_LARGE = 10 << 20
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, KeyError)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive that is safe to unpack, or raise Unreadable, also while it is read."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check(archive, path.name)
            yield archive
    except _BROKEN as error:
        raise Unreadable(f"{path.name}: is damaged or cut off ({error}).") from error
    except RuntimeError as error:  # what `zipfile` raises for a member with a password
        raise Unreadable(
            f"{path.name}: is protected by a password. Remove the protection and ingest it again."
        ) from error


def check(path: Path) -> None:
    """Raise Unreadable unless a file is an Office archive that is safe to unpack."""
    with opened(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith((".xml", ".rels")):
                with archive.open(member) as file:
                    refuse_entities(file.read(1024), path.name)


def refuse_entities(start: bytes, name: str) -> None:
    """Raise Unreadable when XML declares entities, which no Office program writes."""
    if b"<!DOCTYPE" in start or b"<!ENTITY" in start:
        raise Unreadable(f"{name}: its XML declares entities, which Office files never do.")


def _check(archive: zipfile.ZipFile, name: str) -> None:
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise Unreadable(f"{name}: holds {len(members):,} files (at most {MOST_MEMBERS:,}).")
    total = sum(member.file_size for member in members)
    if total > MOST_BYTES:
        raise Unreadable(
            f"{name}: would unpack to {total >> 20:,} MiB (at most {MOST_BYTES >> 20:,} MiB)."
        )
    for member in members:
        if member.flag_bits & 1:
            raise RuntimeError
        ratio = member.file_size // max(member.compress_size, 1)
        if member.file_size > _LARGE and ratio > MOST_RATIO:
            raise Unreadable(
                f"{name}: {member.filename} would unpack to {ratio:,} times its size "
                f"(at most {MOST_RATIO} times)."
            )
