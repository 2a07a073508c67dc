"""Opens files and folders without following a symbolic link, one component of the path at a time.

A path that was judged is opened as it was judged: a link that somebody puts into it meanwhile is
refused by the kernel, not followed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

#: Only to pass through: needs no permission to list the folder.
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A plain open would block forever if a named pipe replaced the file.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextmanager
def parent_of(path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of an absolute path that has no symbolic links; yield it and the name."""
    *folders, name = [part for part in path.split("/") if part] or ["."]
    here = os.open("/", _PASS)
    try:
        for folder in folders:
            inner = os.open(folder, _PASS, dir_fd=here)
            os.close(here)
            here = inner
        yield here, name
    finally:
        os.close(here)


@contextmanager
def folder(name: str, parent: int | None = None) -> Iterator[int]:
    """Open a folder to list it: an absolute path, or a name in an open folder."""
    if parent is None:
        with parent_of(name) as (above, last):
            opened = os.open(last, _LIST, dir_fd=above)
    else:
        opened = os.open(name, _LIST, dir_fd=parent)
    try:
        yield opened
    finally:
        os.close(opened)


def file(name: str, parent: int) -> int:
    """Open a file of an open folder to read it."""
    return os.open(name, _READ, dir_fd=parent)
