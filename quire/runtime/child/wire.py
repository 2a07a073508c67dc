"""What a worker and its children say to each other, and how it is framed.

A message is a 4-byte big-endian length and JSON. Records are named tuples because they are
JSON lists already: a batch of hundreds is read and written without touching its fields.
"""

import json
import struct
from typing import Any, NamedTuple

MESSAGE_LIMIT = 256 * 1024 * 1024

_LENGTH = struct.Struct(">I")


class Assignment(NamedTuple):
    """One task handed to a child; `payload` is JSON text, limits are seconds and bytes."""

    task_id: int
    fence: int
    job_id: int
    kind: str
    payload: str
    attempt: int
    max_attempts: int
    timeout: float | None
    stall_timeout: float | None
    memory: int | None
    grace: float
    key: str


class Ended(NamedTuple):
    """How one assignment ended; `result` is JSON text, `began_at` is wall time (0: never began).

    The child says done, transient, permanent, outage, stopped, settled or revoked. The parent
    says crashed, died, timeout, memory, stalled, revoked or unstarted.
    """

    task_id: int
    fence: int
    outcome: str
    result: str | None = None
    error: str | None = None
    traceback: str | None = None
    began_at: float = 0.0
    duration: float = 0.0
    retry_after: float | None = None
    peak_rss: int | None = None


class Progress(NamedTuple):
    """How far a running task says it is."""

    task_id: int
    fence: int
    fraction: float | None
    message: str | None


class BrokenMessage(Exception):
    """The other side sent bytes that are no message; nothing after them can be read."""


def frame(body: bytes) -> bytes:
    """Put the length before a message that is JSON already."""
    return _LENGTH.pack(len(body)) + body


def pack(message: dict[str, Any]) -> bytes:
    """Encode a message with its length."""
    return frame(json.dumps(message, separators=(",", ":")).encode())


class Inbox:
    """Bytes that arrived, cut into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """Add what was received and return the messages that are now whole."""
        self._bytes += chunk
        messages: list[dict[str, Any]] = []
        at = 0
        while len(self._bytes) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes, at)
            if length > MESSAGE_LIMIT:
                raise BrokenMessage(f"a message of {length} bytes (at most {MESSAGE_LIMIT})")
            start = at + _LENGTH.size
            if len(self._bytes) < start + length:
                break
            messages.append(_parse(self._bytes[start : start + length]))
            at = start + length
        del self._bytes[:at]
        return messages


def _parse(body: bytearray) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except ValueError as error:
        raise BrokenMessage(f"a message that is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise BrokenMessage(f"a message that is a {type(message).__name__}, not an object")
    return message


def printable(text: str) -> str:
    """Return `text` with what a database refuses (NUL, lone surrogates) replaced."""
    return text.encode(errors="replace").decode().replace("\0", "\\0")
