"""Messages between a box and its owner: a JSON object and bytes. Nothing is unpickled.

The owner takes every message of a box for hostile: lengths are checked before memory is taken.
"""

import json
import os
import struct
from typing import Any, NamedTuple

MAX_HEAD = 1 << 20
MAX_BODY = 256 << 20
READ_BYTES = 1 << 18

_SIZES = struct.Struct(">II")


class BrokenMessage(Exception):
    """A box sent what is no message."""


class Message(NamedTuple):
    """One message."""

    head: dict[str, Any]
    body: bytes = b""


def encode(message: Message) -> bytes:
    """Return the bytes of a message."""
    head = json.dumps(message.head, separators=(",", ":")).encode()
    return _SIZES.pack(len(head), len(message.body)) + head + message.body


class Decoder:
    """Splits received bytes into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, chunk: bytes) -> list[Message]:
        """Add bytes and return the messages that are complete."""
        self._bytes += chunk
        found: list[Message] = []
        at = 0
        while len(self._bytes) - at >= _SIZES.size:
            head, body = _SIZES.unpack_from(self._bytes, at)
            if head > MAX_HEAD or body > MAX_BODY:
                raise BrokenMessage(f"a message of {head + body:,} bytes")
            start = at + _SIZES.size
            if len(self._bytes) < start + head + body:
                break
            at = start + head + body
            text = bytes(self._bytes[start : start + head])
            found.append(Message(_object(text), bytes(self._bytes[start + head : at])))
        del self._bytes[:at]
        return found


def write(fd: int, data: bytes) -> None:
    """Write all bytes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenMessage(f"a message that is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise BrokenMessage("a message that is not an object")
    return found
