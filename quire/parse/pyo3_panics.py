"""Panics of libraries written in Rust, which Python would take for the wish to end the program."""

import contextlib
from collections.abc import Iterator

from quire.errors import Unreadable


@contextlib.contextmanager
def as_unreadable(name: str) -> Iterator[None]:
    """Raise Unreadable when a library panics over the file `name`."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise Unreadable(f"{name}: is damaged in a way its reader does not expect.") from error
