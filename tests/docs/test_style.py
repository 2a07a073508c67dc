"""The budgets of the house style: size, names, where things may be written.

Strings that must not occur are put together from parts, so that this file passes too.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST_MODULE = 400
LONGEST_FUNCTION = 60
LONGEST_NINE_OF_TEN = 25
BANNED_WORDS = frozenset(
    [
        *("manager", "service", "helper", "helpers", "util", "utils", "common", "base"),
        *("data", "info", "process", "handle", "v2", "new"),
    ]
)
#: Names that another library chose for a method that we must override.
NAMED_BY_OTHERS = frozenset({"process_bind_param", "process_result_value", "data_received"})
HOSTS = ["pypi" + ".org", "pythonhosted" + ".org"]
MACHINE_PATHS = [f"/{name}/" for name in ("root", "home", "Users")] + [
    "/work" + "/main",
    "/work" + "/shared",
    "/opt" + "/",
    "." + "pyenv",
]

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def definitions(path: Path) -> Iterator[Function | ast.ClassDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function | ast.ClassDef):
            yield node


def lengths() -> dict[str, int]:
    return {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": _length(node)
        for path in modules("quire")
        for node in definitions(path)
        if isinstance(node, Function)
    }


def test_no_module_is_longer_than_the_budget():
    sizes = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in modules("quire")}
    assert {name: size for name, size in sizes.items() if size > LONGEST_MODULE} == {}


def test_no_function_is_longer_than_the_budget():
    assert {name: size for name, size in lengths().items() if size > LONGEST_FUNCTION} == {}


def test_nine_functions_of_ten_are_short(capsys: pytest.CaptureFixture[str]):
    sizes = sorted(lengths().values())
    median, p90 = sizes[len(sizes) // 2], sizes[int(len(sizes) * 0.9)]
    with capsys.disabled():
        print(f"\n{len(sizes)} functions: median {median} lines, p90 {p90}, longest {sizes[-1]}")
    assert p90 <= LONGEST_NINE_OF_TEN


def test_databases_are_told_apart_in_one_module_only():
    found = [str(p.relative_to(ROOT)) for p in modules("quire") if "dialect.name" in p.read_text()]
    assert set(found) <= {"quire/store/dialect.py"}


def test_no_test_sleeps():
    pattern = re.compile(r"\b" + "sleep" + r"\(")
    assert [
        str(p.relative_to(ROOT)) for p in modules("tests") if pattern.search(p.read_text())
    ] == []


def test_names_say_what_a_thing_is():
    named = [(path, path.stem) for path in modules("quire")]
    named += [(path, node.name) for path in modules("quire") for node in definitions(path)]
    vague = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, name in named
        if name not in NAMED_BY_OTHERS and BANNED_WORDS & set(_words(name))
    ]
    assert vague == []


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


def _length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _words(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")
