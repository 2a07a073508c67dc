"""House rules that a test can hold: what may be written where.

Strings that must not occur are put together from parts, so that this file passes too.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
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


#: The parts of the store that may branch on the database; the others call their functions.
BRANCHING = ("quire/store/db/", "quire/store/search/")
#: Reads the file of an embedded database, so it has to ask for its path.
COPIES_THE_FILE = "quire/cli/transfer.py"
SQL = re.compile(
    r"\s*(SELECT\s|INSERT INTO\s|UPDATE\s\w+\sSET\s|DELETE FROM\s|PRAGMA\s|WITH\s\w+\sAS\s"
    r"|(CREATE|ALTER|DROP)\s(TABLE|INDEX)\s)"
)


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text()))


def asks_for_the_database(node: ast.AST) -> bool:
    """`is_sqlite(…)`, `dialect.name`, or a test whether `db.path` is None."""
    match node:
        case ast.Name(id="is_sqlite") | ast.Attribute(attr="is_sqlite"):
            return True
        case ast.Attribute(value=ast.Attribute(attr="dialect"), attr="name"):
            return True
        case ast.Compare(left=ast.Attribute(value=owner, attr="path")):
            return ast.unparse(owner).endswith(("db", "database"))
    return False


def test_only_two_parts_of_the_store_branch_on_the_database():
    found = {
        str(path.relative_to(ROOT))
        for path in modules("quire")
        if any(map(asks_for_the_database, nodes(path)))
    }
    assert {name for name in found if not name.startswith(BRANCHING)} <= {COPIES_THE_FILE}


def test_sql_is_written_in_the_store_only():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value[:40]}"
        for path in modules("quire")
        if not path.is_relative_to(ROOT / "quire" / "store")
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value)
    ]
    assert found == []


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
