"""The lock installs everywhere that Quire supports, and names no place it came from.

Reads requirements/wheels.txt, so it needs no network.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "requirements"
PYTHONS = [(3, 11), (3, 12), (3, 13)]
PLATFORMS = {
    "linux-x86_64": {"sys_platform": "linux", "platform_machine": "x86_64"},
    "linux-aarch64": {"sys_platform": "linux", "platform_machine": "aarch64"},
    "macos-arm64": {"sys_platform": "darwin", "platform_machine": "arm64"},
}
#: Packages that a supported platform goes without, and what it uses instead.
EXCEPTIONS = {
    ("pysqlite3", "linux-aarch64"): "the standard library's sqlite3; where that engine has the "
    "WAL-reset fault, a rollback journal instead of WAL",
    ("wordllama", "linux-aarch64"): "search by words alone (embedder none), or an embedding "
    "endpoint",
}


def pins(lock: str) -> list[Requirement]:
    lines = re.findall(r"^[a-z0-9][^\\\n]*", (LOCKS / lock).read_text(), re.MULTILINE)
    return [Requirement(line) for line in lines]


def test_every_package_of_the_base_lock_has_a_wheel_where_it_is_installed():
    missing = [
        f"{pin.name} on {platform}, CPython {python[0]}.{python[1]}"
        for pin in pins("base.lock")
        for platform in PLATFORMS
        for python in PYTHONS
        if _applies(pin, platform, python) and not _has_wheel(pin, platform, python)
    ]
    assert missing == []


def test_only_the_written_exceptions_are_left_out_on_a_supported_platform():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["ocr"]]
    left_out = {
        (wanted.name, platform)
        for wanted in map(Requirement, asked)
        for platform in PLATFORMS
        for python in PYTHONS
        if not any(
            pin.name == canonicalize_name(wanted.name) and _applies(pin, platform, python)
            for pin in pins("base.lock")
        )
    }
    assert left_out == set(EXCEPTIONS)


@pytest.mark.parametrize(("name", "platform"), EXCEPTIONS)
def test_an_exception_is_still_needed(name: str, platform: str):
    [pin] = [pin for pin in pins("base.lock") if pin.name == name]
    assert not all(_has_wheel(pin, platform, python) for python in PYTHONS)


def test_the_lock_satisfies_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    base = project["project"]["dependencies"]
    assert _unsatisfied(base, "base.lock") == []
    extras = [
        line for lines in project["project"]["optional-dependencies"].values() for line in lines
    ]
    everything = base + extras + project["dependency-groups"]["dev"]
    assert _unsatisfied(everything, "dev.lock") == []
    assert _unsatisfied(project["build-system"]["requires"], "build.lock") == []


def test_a_package_has_the_same_version_in_every_lock():
    for python in PYTHONS:
        versions: dict[str, set[str]] = {}
        for lock in ("base.lock", "dev.lock", "build.lock"):
            for pin in pins(lock):
                if _applies(pin, "linux-x86_64", python):
                    versions.setdefault(pin.name, set()).add(str(pin.specifier))
        assert {name: found for name, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize("lock", ["base.lock", "dev.lock", "build.lock"])
def test_every_pin_has_a_hash_and_no_address(lock: str):
    text = (LOCKS / lock).read_text()
    assert "://" not in text
    assert not re.search(r"^\s*-(?!-hash)", text, re.MULTILINE)
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def _unsatisfied(lines: list[str], lock: str) -> list[str]:
    pinned: dict[str, list[str]] = {}
    for pin in pins(lock):
        pinned.setdefault(canonicalize_name(pin.name), []).append(str(pin.specifier)[2:])
    return [
        line
        for line in lines
        if (wanted := Requirement(line)).name != "quire"
        and not any(
            version in wanted.specifier
            for version in pinned.get(canonicalize_name(wanted.name), ())
        )
    ]


def _applies(pin: Requirement, platform: str, python: tuple[int, int]) -> bool:
    version = f"{python[0]}.{python[1]}"
    place = {
        **PLATFORMS[platform],
        "os_name": "posix",
        "python_version": version,
        "python_full_version": f"{version}.0",
        "platform_python_implementation": "CPython",
    }
    return pin.marker is None or pin.marker.evaluate(place)


def _has_wheel(pin: Requirement, platform: str, python: tuple[int, int]) -> bool:
    usable = set(_tags(platform, python))
    for line in (LOCKS / "wheels.txt").read_text().split():
        wheel, version, _, tags = parse_wheel_filename(line)
        is_pinned = wheel == canonicalize_name(pin.name) and str(version) in str(pin.specifier)
        if is_pinned and tags & usable:
            return True
    return False


def _tags(platform: str, python: tuple[int, int]) -> Iterator[Tag]:
    system, machine = platform.split("-")
    if system == "macos":
        names = list(mac_platforms((14, 0), machine))
    else:
        glibc = [f"manylinux_2_{minor}_{machine}" for minor in range(28, 16, -1)]
        names = [*glibc, f"manylinux2014_{machine}"]
    interpreter = f"cp{python[0]}{python[1]}"
    yield from cpython_tags(python, platforms=names, abis=[interpreter])
    yield from compatible_tags(python, interpreter, names)


def test_every_dependency_is_explained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    asked = [
        *project["project"]["dependencies"],
        *(line for lines in extras.values() for line in lines),
        *project["dependency-groups"]["dev"],
    ]
    text = (ROOT / "docs/dependencies.md").read_text()
    names = {Requirement(line).name for line in asked} - {"quire"}
    assert [name for name in sorted(names) if not re.search(rf"\b{re.escape(name)}\b", text)] == []
