"""House rules that a test can hold: what may be written where.

Strings that must not occur are put together from parts, so that this file passes too.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ["pypi" + ".org", "pythonhosted" + ".org"]
MACHINE_PATHS = [f"/{name}/" for name in ("root", "home", "Users")] + [
    "/work" + "/main",
    "/work" + "/shared",
    "/opt" + "/",
    "." + "pyenv",
]


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def test_databases_are_told_apart_in_one_module_only():
    found = [str(p.relative_to(ROOT)) for p in modules("quire") if "dialect.name" in p.read_text()]
    assert set(found) <= {"quire/store/db/dialect.py"}


def test_no_test_sleeps():
    pattern = re.compile(r"\b" + "sleep" + r"\(")
    assert [
        str(p.relative_to(ROOT)) for p in modules("tests") if pattern.search(p.read_text())
    ] == []


def test_no_file_names_a_registry_or_a_path_of_a_machine():
    places = [*HOSTS, *MACHINE_PATHS]
    found = [
        f"{path.relative_to(ROOT)}: {place}"
        for path in repository_files()
        for place in places
        if place.encode() in path.read_bytes()
    ]
    assert found == []


def repository_files() -> list[Path]:
    """The files that are in git or would be added to it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:  # an unpacked archive
        paths = [p for p in ROOT.rglob("*") if not {".venv", ".cache"} & set(p.parts)]
    return [path for path in paths if path.is_file()]
