"""Reads files in a box: the same results as `formats`, from a process that can reach nothing else.

What the box answers is checked here as the input of a stranger: a file may have taken its parser
over. A parser of a plugin runs outside, in the process of its task: it is the operator's code and
may need a network or a program.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, Protocol

from quire import log
from quire.errors import Permanent, Unreadable
from quire.model import blocks
from quire.model.pages import Attachment, Outline, Page, PageFailure
from quire.parse import encoding, file_type, formats, limits, word_boxes
from quire.parse.parser import ReadOptions
from quire.sandbox.box import BoxDied, RemoteError, Sandbox, TookTooLong
from quire.sandbox.messages import Message

SERVER = "quire.parse.box_server"
#: Seconds of processor time to detect a type, count pages, or draw a thumbnail.
LOOK_CPU_SECONDS = 60.0
INSPECT_CPU_SECONDS = 600.0

_UNITS = ("page", "whole")
_VIA = ("text", "ocr", "none")


class Reader(Protocol):
    """Reads files of one tenant, in a box or in this process."""

    def detect(self, path: Path, name: str) -> str:
        """Return the media type of a file; `name` is its original name."""

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Open a file and count its pages. Raises Unreadable."""

    def read(
        self,
        path: Path,
        media_type: str,
        options: ReadOptions,
        first: int,
        last: int,
        known_image: Callable[[str], bool] | None = None,
    ) -> Iterator[Page | PageFailure]:
        """Yield the pages first…last of a file, in order."""

    def thumbnail(self, path: Path, media_type: str) -> bytes | None:
        """Return page 1 as a small JPEG, or None if it cannot be rendered."""

    def pixels(self, path: Path, media_type: str, number: int, width: int) -> Any:
        """Return a page as an array of height × width × 3: blue, green, red. Raises Unreadable."""

    def attachments(self, path: Path, media_type: str) -> Iterator[Attachment]:
        """Yield the files inside a message."""


class PlainReader:
    """Reads files in this process: for plugins, and where QUIRE_SANDBOX is off."""

    def detect(self, path: Path, name: str) -> str:
        """Return the media type of a file; `name` is its original name."""
        return file_type.detect(path, name)

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Open a file and count its pages. Raises Unreadable."""
        return formats.inspect(path, media_type, options)

    def read(
        self,
        path: Path,
        media_type: str,
        options: ReadOptions,
        first: int,
        last: int,
        known_image: Callable[[str], bool] | None = None,
    ) -> Iterator[Page | PageFailure]:
        """Yield the pages first…last of a file, in order."""
        return formats.read(path, media_type, options, first, last, known_image=known_image)

    def thumbnail(self, path: Path, media_type: str) -> bytes | None:
        """Return page 1 as a small JPEG, or None if it cannot be rendered."""
        from quire.parse.render import thumbnail

        return thumbnail(path, media_type)

    def pixels(self, path: Path, media_type: str, number: int, width: int) -> Any:
        """Return a page as an array of height × width × 3: blue, green, red. Raises Unreadable."""
        from quire.parse.render import page_pixels

        return _array(*page_pixels(path, media_type, number, width))

    def attachments(self, path: Path, media_type: str) -> Iterator[Attachment]:
        """Yield the files inside a message."""
        yield from formats.attachments(path, media_type)


class BoxedReader(PlainReader):
    """Reads files in a box that serves one tenant at a time."""

    def __init__(
        self, sandbox: Sandbox, tenant: str, on_death: Callable[[BoxDied], NoReturn]
    ) -> None:
        self._sandbox = sandbox
        self._tenant = tenant
        self._on_death = on_death

    def detect(self, path: Path, name: str) -> str:
        """Return the media type of a file; `name` is its original name."""
        request = {"do": "detect", "name": name}
        found = _text(self._one(request, path, LOOK_CPU_SECONDS).head.get("type"), 200)
        return file_type.refine(found, name, path)

    def inspect(self, path: Path, media_type: str, options: ReadOptions) -> Outline:
        """Open a file and count its pages. Raises Unreadable."""
        if not formats.is_builtin(media_type, options):
            return super().inspect(path, media_type, options)
        request = {"do": "inspect", "media_type": media_type, "options": _inside(options)}
        return _outline(media_type, self._one(request, path, INSPECT_CPU_SECONDS))

    def read(
        self,
        path: Path,
        media_type: str,
        options: ReadOptions,
        first: int,
        last: int,
        known_image: Callable[[str], bool] | None = None,
    ) -> Iterator[Page | PageFailure]:
        """Yield the pages first…last of a file, in order."""
        if not formats.is_builtin(media_type, options):
            yield from super().read(path, media_type, options, first, last, known_image)
            return
        request = {
            "do": "read", "media_type": media_type, "options": _inside(options),
            "first": first, "last": last, "asks": known_image is not None,
        }  # fmt: skip

        def answer(question: dict[str, Any]) -> dict[str, Any]:
            key = _text(question.get("image"), 100)
            return {"known": known_image is not None and known_image(key)}

        before = 0
        for message in self._ask(request, path, answer=answer):
            page = _page(message)
            if not before < page.number <= limits.MAX_PAGES:
                raise _invalid("pages out of order")
            yield page
            before = page.number

    def thumbnail(self, path: Path, media_type: str) -> bytes | None:
        """Return page 1 as a small JPEG, or None if it cannot be rendered."""
        request = {"do": "thumbnail", "media_type": media_type}
        try:
            found = list(self._ask(request, path, cpu=LOOK_CPU_SECONDS))
        except Unreadable:
            return None
        return found[0].body[: limits.THUMBNAIL_BYTES] if found else None

    def pixels(self, path: Path, media_type: str, number: int, width: int) -> Any:
        """Return a page as an array of height × width × 3: blue, green, red. Raises Unreadable."""
        request = {"do": "pixels", "media_type": media_type, "page": number, "width": width}
        found = self._one(request, path, LOOK_CPU_SECONDS)
        wide, high = map(_number, _list(found.head.get("size"), 2))
        if wide * high * 3 != len(found.body) or not found.body:
            raise _invalid("a picture that is none")
        return _array(wide, high, found.body)

    def attachments(self, path: Path, media_type: str) -> Iterator[Attachment]:
        """Yield the files inside a message."""
        for message in self._ask({"do": "attachments", "media_type": media_type}, path):
            name = encoding.clean(_text(message.head.get("name"), 200)).replace("/", "_")
            yield Attachment(name or "attachment", message.body)

    def _one(self, request: dict[str, Any], path: Path, cpu: float) -> Message:
        found = list(self._ask(request, path, cpu=cpu))
        if len(found) != 1:
            raise _invalid(f"{len(found)} answers")
        return found[0]

    def _ask(
        self,
        request: dict[str, Any],
        path: Path,
        *,
        answer: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        cpu: float | None = None,
    ) -> Iterator[Message]:
        try:
            yield from self._sandbox.ask(self._tenant, request, path, answer=answer, cpu=cpu)
        except TookTooLong as error:
            raise Unreadable(
                f"{path.name}: takes more than {cpu:g} s of processor time to open."
            ) from error
        except RemoteError as error:
            raise _local(error) from None
        except BoxDied as died:
            self._on_death(died)


def _array(width: int, height: int, pixels: bytes) -> Any:
    import numpy as np

    return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)


class ParserFailed(Exception):
    """A parser raised what it should not: a fault of the parser, tried again."""


def _local(error: RemoteError) -> Exception:
    text = encoding.clean(str(error))
    if error.kind == "Unreadable":
        return Unreadable(text)
    if error.kind in ("Permanent", "BadInput"):
        return Permanent(text)
    if error.kind == "MemoryError":
        return MemoryError(text or "the reading process has no more memory")
    failed = ParserFailed(f"{encoding.clean(error.kind)[:100]}: {text}")
    failed.add_note(encoding.clean(error.trace))
    return failed


def _inside(options: ReadOptions) -> list[Any]:
    """Return the options for a box, which knows no plugin."""
    return ["auto", options.ocr, list(options.ocr_languages), options.row_size]


def _outline(media_type: str, message: Message) -> Outline:
    head = message.head
    unit, length, scans = head.get("unit"), _number(head.get("length")), head.get("scans")
    keys = tuple(message.body.decode("ascii", "replace").split("\n")) if head.get("keyed") else None
    if unit not in _UNITS or length < 1 or (keys is not None and len(keys) != length):
        raise _invalid("an outline that is none")
    if length > limits.MAX_PAGES:
        raise Unreadable(f"has {length:,} pages (at most {limits.MAX_PAGES:,}).")
    return Outline(media_type, unit, length, keys, None if scans is None else _number(scans))


def _page(message: Message) -> Page | PageFailure:
    if "failed" in message.head:
        number, error = _list(message.head["failed"], 2)
        return PageFailure(_number(number), encoding.clean(_text(error, 4000)))
    number, width, height, via, label, image_key = _list(message.head.get("page"), 6)
    text_size, words_size = map(_number, _list(message.head.get("sizes"), 2))
    if via not in _VIA or (end := text_size + words_size) > len(message.body):
        raise _invalid("a page that is none")
    if words_size > word_boxes.most_bytes(text_size):
        raise _invalid("boxes of more words than the text can have")
    page = Page(
        _number(number),
        message.body[:text_size].decode("utf-8", "replace"),
        message.body[text_size:end],
        _length(width),
        _length(height),
        via,
        None if label is None else encoding.clean(_text(label, 500)),
        None if image_key is None else _text(image_key, 100),
        message.body[end:],
    )
    try:
        blocks.unpack(page.blocks, len(word_boxes.word_spans(page)) if page.blocks else 0)
    except blocks.InvalidBlocks as error:
        # The text is right without them.
        log.event("read.blocks_dropped", page=page.number, error=str(error))
        return page._replace(blocks=b"")
    return page


def _list(value: Any, length: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise _invalid("a page that is none")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise _invalid("a number that is none")
    return value


def _length(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value < 1e9:
        raise _invalid("a size that is none")
    return float(value)


def _text(value: Any, longest: int) -> str:
    if not isinstance(value, str):
        raise _invalid("a text that is none")
    return value[:longest]


def _invalid(what: str) -> Permanent:
    return Permanent(f"the reading process answered with {what}. The file may be hostile.")
