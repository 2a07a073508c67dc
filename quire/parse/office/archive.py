"""Opens ZIP archives and rejects malicious ones (ZIP bombs, XML entities) before unpacking.

A file of a few kilobytes can unpack to terabytes, and an entity in its XML expand to gigabytes.
The sizes in the archive's directory can be trusted, because `zipfile` never reads beyond them.
"""

import contextlib
import errno
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from quire.errors import Unreadable

MAX_BYTES = 1 << 30
MAX_RATIO = 200
MAX_MEMBERS = 100_000
_RATIO_CHECKED_BYTES = 1 << 20  # what unpacks to less may have any ratio
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, KeyError)


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive that is safe to unpack. Raises Unreadable, also while it is read."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_sizes(archive, path.name)
            yield archive
    except _ZIP_ERRORS as error:
        raise Unreadable(f"{path.name}: is damaged or cut off ({error}).") from error
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # Its directory names a place before the start of the file.
        raise Unreadable(f"{path.name}: is damaged: its directory is wrong.") from error
    except RuntimeError as error:  # raised for encrypted members
        raise Unreadable(
            f"{path.name}: is protected by a password. Remove the protection and ingest it again."
        ) from error


def check(path: Path) -> None:
    """Raise Unreadable unless the file is an Office archive that is safe to unpack."""
    with open_archive(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith((".xml", ".rels")):
                with archive.open(member) as file:
                    start = file.read(1024)
                if b"<!DOCTYPE" in start or b"<!ENTITY" in start:
                    raise Unreadable(
                        f"{path.name}: its XML declares entities, which Office files never do."
                    )


def _check_sizes(archive: zipfile.ZipFile, name: str) -> None:
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise Unreadable(f"{name}: holds {len(members):,} files (at most {MAX_MEMBERS:,}).")
    total = sum(member.file_size for member in members)
    if total > MAX_BYTES:
        raise Unreadable(
            f"{name}: would unpack to {total >> 20:,} MiB (at most {MAX_BYTES >> 20:,} MiB)."
        )
    for member in members:
        if member.flag_bits & 1:
            raise RuntimeError
    # Of the whole archive: many small members are as much as a large one.
    ratio = total // max(sum(member.compress_size for member in members), 1)
    if total > _RATIO_CHECKED_BYTES and ratio > MAX_RATIO:
        raise Unreadable(
            f"{name}: would unpack to {ratio:,} times its size (at most {MAX_RATIO} times)."
        )
