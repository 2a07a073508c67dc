"""Parse multipart/form-data as a stream: files are neither held in memory nor written twice."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from quire.errors import BadInput

#: Maximum bytes of a field that is not a file.
MOST_FIELD = 10_000


class Begin(NamedTuple):
    """The start of a part: a file if it has a file name, else a field."""

    name: str
    filename: str | None


class End(NamedTuple):
    """The end of a part."""


Event = Begin | bytes | End


class _Reader:
    """Turns chunks of a body into events; called by the parser."""

    def __init__(self, boundary: bytes) -> None:
        self.happened: list[Event] = []
        self.is_whole = False
        self._field, self._value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}
        self.parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._headers.clear,
                "on_header_field": lambda text, start, stop: self._field.extend(text[start:stop]),
                "on_header_value": lambda text, start, stop: self._value.extend(text[start:stop]),
                "on_header_end": self._on_header,
                "on_headers_finished": self._on_headers,
                "on_part_data": lambda text, *span: self.happened.append(text[slice(*span)]),
                "on_part_end": lambda: self.happened.append(End()),
                "on_end": self._on_end,
            },
        )

    def _on_header(self) -> None:
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def _on_headers(self) -> None:
        _, told = parse_options_header(self._headers.get(b"content-disposition", b""))
        name, filename = told.get(b"name", b""), told.get(b"filename")
        if filename is not None:
            # Browsers escape these three and not `%` itself.
            for escaped, plain in ((b"%22", b'"'), (b"%0D", b"\r"), (b"%0A", b"\n")):
                filename = filename.replace(escaped, plain)
        self.happened.append(
            Begin(
                name.decode(errors="replace"),
                None if filename is None else filename.decode(errors="replace"),
            )
        )

    def _on_end(self) -> None:
        self.is_whole = True


def boundary_of(content_type: str) -> bytes:
    """Return the boundary, or raise BadInput."""
    _, told = parse_options_header(content_type)
    if not (found := told.get(b"boundary")):
        raise BadInput("upload: multipart/form-data without a boundary. Nothing was stored.")
    return found


def events(pieces: Iterable[bytes], boundary: bytes) -> Iterator[Event]:
    """Yield events in order; raise BadInput if the form is malformed or truncated."""
    reader = _Reader(boundary)
    for piece in pieces:
        try:
            reader.parser.write(piece)
        except FormParserError as error:
            raise BadInput(
                f"upload: the form is malformed ({error}). Nothing was stored."
            ) from error
        happened, reader.happened = reader.happened, []
        yield from happened
    if not reader.is_whole:
        raise BadInput("upload: the form is truncated. Nothing was stored; upload it again.")


def until_end(stream: Iterator[Event]) -> Iterator[bytes]:
    """Yield the bytes of the current part."""
    for event in stream:
        if isinstance(event, End):
            return
        if isinstance(event, bytes):
            yield event


def field_of(name: str, stream: Iterator[Event]) -> str:
    """Return the text of the current field."""
    got = b""
    for piece in until_end(stream):
        got += piece
        if len(got) > MOST_FIELD:
            raise BadInput(f"{name[:40]}: longer than {MOST_FIELD:,} bytes. Nothing was stored.")
    return got.decode(errors="replace")
