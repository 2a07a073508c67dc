"""Compound files (OLE2), which old Office programs and Outlook write: a file system in a file.

Every chain of sectors is bounded by the size of the file, so a chain that loops ends.
"""

import struct
from array import array
from collections.abc import Iterator
from pathlib import Path

from quire.errors import Unreadable

_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENTRY = 128
_MINI_SECTOR, _MINI_STREAM = 64, 4096  # streams below this size are in mini sectors
_LAST = 0xFFFFFFFA  # and above: ends and other marks
_MAX_ENTRIES = 100_000
_STREAM, _STORAGE, _ROOT = 2, 1, 5
_HEAD_TABLE = 109  # sectors of the allocation table that the header lists


class _Entry:
    __slots__ = ("child", "first", "kind", "left", "name", "right", "size")

    def __init__(self, raw: bytes) -> None:
        length = min(int.from_bytes(raw[64:66], "little"), 64)
        self.name = raw[: max(length - 2, 0)].decode("utf-16-le", "replace")
        self.kind = raw[66]
        self.left, self.right, self.child = struct.unpack("<III", raw[68:80])
        self.first, self.size = struct.unpack("<IQ", raw[116:128])


class CompoundFile:
    """The streams of a compound file by their path, with names in lower case."""

    def __init__(self, path: Path) -> None:
        self._content = path.read_bytes()
        if len(self._content) < 512 or not self._content.startswith(_MAGIC):
            raise Unreadable(f"{path.name}: is damaged or cut off.")
        try:
            self._open()
        except (struct.error, IndexError, ValueError) as error:
            raise Unreadable(f"{path.name}: is damaged or cut off ({error}).") from error

    def _open(self) -> None:
        head = self._content
        self._is_large = head[30:32] == b"\x0c\0"
        self._sector = 4096 if self._is_large else 512
        self._table = self._allocation_table()
        directory = self._chain(int.from_bytes(head[48:52], "little"))
        raw = b"".join(map(self._read_sector, directory))[: _ENTRY * _MAX_ENTRIES]
        self._entries = [_Entry(raw[at : at + _ENTRY]) for at in range(0, len(raw), _ENTRY)]
        if not self._entries or self._entries[0].kind != _ROOT:
            raise ValueError("it has no root")
        minis = b"".join(map(self._read_sector, self._chain(int.from_bytes(head[60:64], "little"))))
        self._mini_table = _numbers(minis)
        root = self._entries[0]
        self._minis = b"".join(map(self._read_sector, self._chain(root.first)))
        self.streams = dict(self._walk())

    def _allocation_table(self) -> "array[int]":
        head = self._content
        sectors = list(_numbers(head[76 : 76 + 4 * _HEAD_TABLE]))
        more = int.from_bytes(head[68:72], "little")
        seen: set[int] = set()
        while more < _LAST and more not in seen:
            seen.add(more)
            listed = _numbers(self._read_sector(more))
            sectors += listed[:-1]
            more = listed[-1]
        unique = dict.fromkeys(each for each in sectors if each < _LAST)
        return _numbers(b"".join(map(self._read_sector, unique)))

    def _read_sector(self, number: int) -> bytes:
        at = (number + 1) * self._sector
        found = self._content[at : at + self._sector]
        if not found:
            raise ValueError("a part is missing")
        return found.ljust(self._sector, b"\0")

    def _chain(self, first: int) -> list[int]:
        return _chain(self._table, first)

    def _walk(self) -> Iterator[tuple[str, _Entry]]:
        """Yield the streams; each entry is visited once, however they refer to each other."""
        seen = {0}
        pending = [(self._entries[0].child, "")]
        while pending:
            number, folder = pending.pop()
            if number >= len(self._entries) or number in seen:
                continue
            seen.add(number)
            entry = self._entries[number]
            name = f"{folder}{entry.name.lower()}"
            pending += [(entry.left, folder), (entry.right, folder)]
            if entry.kind == _STORAGE:
                pending.append((entry.child, f"{name}/"))
            elif entry.kind == _STREAM:
                yield name, entry

    def read(self, name: str) -> bytes:
        """Return the bytes of a stream; none if there is no such stream."""
        entry = self.streams.get(name.lower())
        if entry is None:
            return b""
        size = entry.size if self._is_large else entry.size & 0xFFFFFFFF
        size = min(size, len(self._content))
        if size >= _MINI_STREAM:
            return b"".join(map(self._read_sector, self._chain(entry.first)))[:size]
        places = (each * _MINI_SECTOR for each in _chain(self._mini_table, entry.first))
        return b"".join(self._minis[at : at + _MINI_SECTOR] for at in places)[:size]


def _numbers(raw: bytes) -> "array[int]":
    return array("I", struct.unpack(f"<{len(raw) // 4}I", raw[: len(raw) // 4 * 4]))


def _chain(table: "array[int]", first: int) -> list[int]:
    """Return the sectors that follow each other; one that comes again ends the chain."""
    found: dict[int, None] = {}
    while first < len(table) and first not in found:
        found[first] = None
        first = table[first]
    return list(found)
