"""Writes compound files as Outlook does: streams in folders, in sectors of 512 bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping

_END, _FREE, _TABLE, _NONE = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD, 0xFFFFFFFF


def compound(streams: Mapping[str, bytes]) -> bytes:  # noqa: C901
    """A compound file; a name `folder/name` is a stream in a folder."""
    sectors: list[bytes] = []
    table: list[int] = []

    def put(content: bytes) -> int:
        parts = [content[at : at + 512] for at in range(0, len(content), 512)]
        first = len(sectors)
        for number, part in enumerate(parts, start=first + 1):
            sectors.append(part.ljust(512, b"\0"))
            table.append(number if number < first + len(parts) else _END)
        return first if parts else _END

    minis, mini_table = b"", []
    tree: dict[str, dict[str, tuple[int, int]]] = {"": {}}
    for path, content in streams.items():
        folder, _, name = path.rpartition("/")
        if len(content) < 4096:
            first, count = len(minis) // 64, -(-len(content) // 64)
            minis += content.ljust(count * 64, b"\0")
            mini_table += [*range(first + 1, first + count), _END] if count else []
            start = first if count else _END
        else:
            start = put(content)
        tree.setdefault(folder, {})[name] = (start, len(content))
    entries: list[bytes] = []

    def entry(name: str, kind: int, right: int, child: int, first: int, size: int) -> bytes:
        named = name.encode("utf-16-le")
        ids = struct.pack("<III", _NONE, right, child)
        head = named.ljust(64, b"\0") + struct.pack("<HBB", len(named) + 2, kind, 1) + ids
        return head + bytes(36) + struct.pack("<IQ", first, size)

    listed = [("", name, 2, each) for name, each in tree[""].items()]
    listed += [("", folder, 1, (0, 0)) for folder in tree if folder]
    for folder in tree:
        listed += [(folder, n, 2, each) for n, each in tree[folder].items() if folder]
    first_of = {f: next(i for i, e in enumerate(listed, 1) if e[0] == f) for f in tree}
    for number, (folder, name, kind, (first, size)) in enumerate(listed, start=1):
        is_last = number == len(listed) or listed[number][0] != folder
        child = first_of[name] if kind == 1 else _NONE
        entries.append(entry(name, kind, _NONE if is_last else number + 1, child, first, size))
    mini_start = put(minis)
    mini_table_start = put(struct.pack(f"<{len(mini_table)}I", *mini_table))
    root = entry("Root Entry", 5, _NONE, 1, mini_start, len(minis))
    directory = put(b"".join([root, *entries]))
    at = len(sectors)
    count = -(-(len(table) + 1) // 128)
    while -(-(len(table) + count) // 128) > count:
        count += 1
    table += [_TABLE] * count
    packed = struct.pack(f"<{len(table)}I", *table).ljust(count * 512, b"\xff")
    head = (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16) + struct.pack("<HHHHH", 62, 3, 0xFFFE, 9, 6)
    )
    head += bytes(6) + struct.pack("<IIIIII", 0, count, directory, 0, 4096, mini_table_start)
    head += struct.pack("<III", -(-len(mini_table) // 128), _END, 0)
    head += b"".join(struct.pack("<I", at + n) for n in range(count)).ljust(436, b"\xff")
    return head + b"".join(sectors) + packed


def message(**more: bytes) -> bytes:
    """A message of Outlook with a table in HTML, and an attachment."""

    def text(value: str) -> bytes:
        return value.encode("utf-16-le")

    sent = struct.pack("<IIQ", 0x00390040, 6, (1_772_442_000 + 11_644_473_600) * 10_000_000)
    html = (
        b"<html><body><p>Hello Otto,</p><table><tr><th>Day<th>Metres<tr><td>Mon<td>3.4</table>"
        b"<div id=divRplyFwdMsg>From: Otto</div><p>Older words</p></body></html>"
    )
    streams = {
        "__properties_version1.0": bytes(32) + sent,
        "__substg1.0_0037001F": text("Tides in Zürich"),
        "__substg1.0_0C1A001F": text("Ida Brandt"),
        "__substg1.0_5D01001F": text("ida@example.org"),
        "__substg1.0_0E04001F": text("Otto Lund"),
        "__substg1.0_1000001F": text("Hello Otto,\r\n\r\nDay Metres Mon 3.4\r\n"),
        "__substg1.0_10130102": html,
        "__attach_version1.0_#00000000/__substg1.0_3707001F": text("../tides.csv"),
        "__attach_version1.0_#00000000/__substg1.0_37010102": b"day,metres\n" + b"Mon,3.4\n" * 900,
    }
    return compound({**streams, **more})
