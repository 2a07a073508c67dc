"""No module of Quire imports itself through others, not even inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "quire").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of every import but those for type checkers only."""
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names)


def test_no_import_goes_in_a_circle():
    known = modules()
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        found = {
            whole if (whole := f"{module}.{each}") in known else module
            for module, each in imports(ast.parse(path.read_text()))
        }
        graph[name] = {each for each in found if each in known and each != name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None
