"""Landlock: limits this process to reading a few folders, without any privilege.

It also refuses TCP, abstract Unix sockets and signals to others where the kernel's version of it
can. The permissions of the files themselves still apply.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Iterable
from pathlib import Path

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same on every architecture
_WRITE_FILE, _READ_FILE, _READ_FOLDER = 1 << 1, 1 << 2, 1 << 3
_PATH_BENEATH = 1
#: The kinds of access to files that the first version with so many can refuse.
_FILE_ACCESS = {1: 13, 2: 14, 3: 15, 5: 16}
_NO_NEW_PRIVILEGES = 38
_LIBRARY = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Return the version of Landlock in this kernel, 0 without it."""
    if platform.system() != "Linux":
        return 0
    return max(int(_LIBRARY.syscall(_CREATE, None, 0, 1)), 0)


def restrict(readable: Iterable[Path], writable: Iterable[Path] = ()) -> None:
    """Refuse this thread all files but those; a path that does not exist is left out."""
    has = version()
    files = (1 << max(bits for since, bits in _FILE_ACCESS.items() if since <= has)) - 1
    network, scopes = (3 if has >= 4 else 0), (3 if has >= 6 else 0)
    size = 24 if has >= 6 else 16 if has >= 4 else 8
    rules = ctypes.create_string_buffer(struct.pack("QQQ", files, network, scopes)[:size], size)
    ruleset = _checked(_LIBRARY.syscall(_CREATE, rules, size, 0))
    try:
        for path in readable:
            _allow(ruleset, path, _READ_FILE | (_READ_FOLDER if path.is_dir() else 0))
        for path in writable:
            _allow(ruleset, path, _READ_FILE | _WRITE_FILE)
        _checked(_LIBRARY.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _checked(_LIBRARY.syscall(_RESTRICT, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, access: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = ctypes.create_string_buffer(struct.pack("=Qi", access, beneath), 12)
        _checked(_LIBRARY.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
    finally:
        os.close(beneath)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "landlock")
    return int(result)
