"""Takes from this process everything that reading one file does not need.

What the machine can do is asked first (`missing`): Landlock and seccomp are Linux's. Limits of
memory, files and processors hold on every system.
"""

import ctypes
import os
import resource
import struct
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from quire.errors import Refused
from quire.sandbox import landlock, seccomp

MODES = ("auto", "require", "off")

#: Bytes of address space of a reading process.
MEMORY_BYTES = 4 << 30
#: Seconds of processor time after which the kernel ends a box; it is replaced long before.
CPU_SECONDS = 12 * 3600
OPEN_FILES = 256
PROCESSES = 4096  # of the user; the box itself may start none
_OOM_SCORE = "800"

_DEATH_SIGNAL, _DUMPABLE = 1, 4
_CAPGET, _CAPSET = {"x86_64": (125, 126), "aarch64": (90, 91)}.get(os.uname().machine, (0, 0))
_CAPABILITIES_VERSION, _READ_ANY_FILE = 0x20080522, 1 << 2

#: What a process needs to find its language, libraries and clock; nothing here is a secret.
ENVIRONMENT = ("PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "TMPDIR")
_LIBRARIES = (
    "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib", "/etc/ld.so.cache",
    "/usr/share/fonts", "/usr/local/share/fonts", "/usr/share/X11/fonts", "/usr/share/zoneinfo",
    "/etc/localtime", "/sys/devices/system/cpu", "/proc/cpuinfo", "/proc/meminfo",
    "/dev/zero", "/dev/urandom",
)  # fmt: skip


class Limits(NamedTuple):
    """What a box may use."""

    memory: int = MEMORY_BYTES
    cpu: int = CPU_SECONDS


def missing() -> list[str]:
    """List what this machine lacks for a whole box."""
    lacks = []
    if not landlock.version():
        lacks.append("Landlock (Linux 5.13 or later; containers must allow its system calls)")
    if not seccomp.is_supported():
        lacks.append("seccomp filters (Linux on x86-64 or aarch64)")
    return lacks


def check(mode: str) -> None:
    """Raise Refused if a whole box is required and this machine cannot make one."""
    if mode == "require" and (lacks := missing()):
        raise Refused(
            f"QUIRE_SANDBOX=require: this machine has no {' and no '.join(lacks)}. Nothing was "
            "started. Run on a newer kernel, or set QUIRE_SANDBOX=auto."
        )


def described(mode: str) -> str | None:
    """Return what people should know about boxes on this machine; None if they are whole."""
    if mode == "off":
        return "box: QUIRE_SANDBOX is off: files are read with all rights of a worker."
    if lacks := missing():
        return (
            f"box: this machine has no {' and no '.join(lacks)}. A file that takes its parser "
            "over has rights that a whole box would refuse; see docs/limits.md."
        )
    return None


def environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a boxed process."""
    kept = {name: given[name] for name in ENVIRONMENT if name in given}
    # Threads of numpy would be lost at the fork, and one page needs no more than one.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return kept | threads | {"PYTHONDONTWRITEBYTECODE": "1"}


def confine(folder: Path, limits: Limits, parent: int, *, is_whole: bool = True) -> None:
    """Confine this process to its limits and to reading `folder` and the Python installation.

    Without `is_whole`, to its limits only.
    """
    _set_limits(limits)
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_DEATH_SIGNAL, 9, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    if not is_whole:
        return
    library.prctl(_DUMPABLE, 0, 0, 0, 0)
    _drop_capabilities(library)
    if landlock.version():
        landlock.restrict([folder, *installation()], [Path("/dev/null")])
    if seccomp.is_supported():
        seccomp.restrict()


def installation() -> Iterator[Path]:
    """Yield the folders of Python, its packages, Quire, system libraries and fonts."""
    yield Path(__file__).parents[1]
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        yield Path(sysconfig.get_path(name))
    for prefix in {sys.prefix, sys.base_prefix}:
        yield Path(prefix, "lib")
    for each in sys.path:
        if Path(each).name in ("site-packages", "dist-packages"):
            yield Path(each)
    yield from map(Path, _LIBRARIES)


def _set_limits(limits: Limits) -> None:
    for kind, most in (
        (resource.RLIMIT_AS, limits.memory),
        (resource.RLIMIT_CPU, limits.cpu),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_FSIZE, 0),  # it writes to its pipe and to no file
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):  # macOS has not all of them
            continue


def _drop_capabilities(library: ctypes.CDLL) -> None:
    """Drop the powers of root, but that of reading files of another owner."""
    if not _CAPSET:
        return
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITIES_VERSION, 0), 8)
    held = ctypes.create_string_buffer(24)
    if library.syscall(_CAPGET, header, held):
        return
    effective, permitted, *_ = struct.unpack("6I", held.raw)
    kept = (effective & _READ_ANY_FILE, permitted & _READ_ANY_FILE, 0, 0, 0, 0)
    library.syscall(_CAPSET, header, ctypes.create_string_buffer(struct.pack("6I", *kept), 24))
