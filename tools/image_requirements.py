"""Writes requirements/image.txt: the part of dev.lock that the container image needs.

    .venv/bin/python tools/image_requirements.py            write it
    .venv/bin/python tools/image_requirements.py --check    exit with 1 if it is out of date

The image has Quire with all extras, and Flower. Dependencies are read from the installed packages,
versions and hashes from the lock, so that there is only one resolution.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "dev.lock"
IMAGE = ROOT / "requirements" / "image.txt"
WANTED = ("quire[all]", "flower")
#: Environments that the image runs in, for dependency markers.
ENVIRONMENTS = [
    {
        "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix",
        "platform_machine": machine, "python_version": "3.13", "python_full_version": "3.13.0",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
    }
    for machine in ("x86_64", "aarch64")
]  # fmt: skip


def text() -> str:
    """Return the entries of the lock that the image needs, unchanged."""
    names = set(_closure())
    entries = re.split(r"^(?=[a-z0-9])", LOCK.read_text(), flags=re.MULTILINE)
    return "".join(entry for entry in entries[1:] if _name(entry) in names)


def _name(entry: str) -> str:
    return canonicalize_name(re.split(r"[=\s;]", entry, maxsplit=1)[0])


def _closure() -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    left = [(one, "") for one in map(Requirement, WANTED)]
    while left:
        requirement, _ = left.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            left += [(needed, name) for needed in _needs(name, extra)]
    yield from {name for name, _ in seen}


def _needs(name: str, extra: str) -> Iterator[Requirement]:
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return  # not installed on this platform; its own entry is in the lock
    for needed in map(Requirement, lines):
        if needed.marker is None:
            if not extra:
                yield needed
        elif any(
            needed.marker.evaluate({**environment, "extra": extra}) for environment in ENVIRONMENTS
        ):
            yield needed


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if IMAGE.exists() and IMAGE.read_text() == text() else 1)
    IMAGE.write_text(text())
