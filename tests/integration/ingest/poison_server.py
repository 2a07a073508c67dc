"""Stands for libraries that break on a page: what some words on it do to the box that reads it."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quire.parse import formats, render
from quire.parse.box_server import handle, preload

__all__ = ["handle", "preload"]

_read, _thumbnail = formats.read, render.thumbnail


def _suffer(text: str) -> None:
    if "ABORT" in text:
        os.abort()
    if "HANG" in text:
        threading.Event().wait()
    if "HUNGRY" in text:
        eaten = []
        while True:
            eaten.append(b"x" * (50 << 20))
            threading.Event().wait(0.02)


def read(*arguments: Any, **more: Any) -> Iterator[Any]:
    for page in _read(*arguments, **more):
        _suffer(getattr(page, "text", ""))
        yield page


def draw(path: Path, media_type: str) -> bytes | None:
    if b"UNDRAWABLE" in path.read_bytes():
        os.abort()
    return _thumbnail(path, media_type)


formats.read = read
render.thumbnail = draw
