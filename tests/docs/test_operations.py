"""The page for operators is true: its commands run, and every event that is logged is listed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.store.doctor.queue_invariants import INVARIANTS
from tests.docs import markdown

PAGE = "docs/operations.md"


@pytest.mark.timeout(400)
def test_the_commands_of_the_page_run(home: Path):
    with markdown.terminal(home) as shell:
        for block in markdown.blocks(PAGE):
            if block.language == "sh":
                shell.run(block)


@pytest.mark.parametrize(
    ("title", "calls"),
    [("Log", {"log.event", "log.trouble"}), ("Events of a job", {"events.Event", "Event"})],
)
def test_every_event_that_the_code_names_is_listed_and_no_other(title: str, calls: set[str]):
    listed = {
        name
        for row in markdown.rows(markdown.section(PAGE, title))
        for name in markdown.quoted(row[0])
    }
    patterns = set(named_in_code(calls))
    missing = [p for p in patterns if not any(re.fullmatch(p, name) for name in listed)]
    unknown = [name for name in listed if not any(re.fullmatch(p, name) for p in patterns)]
    assert (sorted(missing), sorted(unknown)) == ([], [])


def test_every_invariant_is_explained():
    told = {
        row[0].strip("`"): row[1] for row in markdown.rows(markdown.section(PAGE, "Invariants"))
    }
    assert told.pop("schema.version")
    assert told == {each.name: each.sentence for each in INVARIANTS}


def named_in_code(calls: set[str]) -> Iterator[str]:
    """Yield a pattern for each event that the code names; what it fills in may be any word."""
    for path in sorted((markdown.ROOT / "quire").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in calls and node.args:
                yield from _names(node.args[1 if "Event" in ast.unparse(node.func) else 0], tree)


def _names(given: ast.expr, tree: ast.Module) -> Iterator[str]:
    if isinstance(given, ast.Constant):
        yield re.escape(str(given.value))
    elif isinstance(given, ast.IfExp):
        yield from _names(given.body, tree)
        yield from _names(given.orelse, tree)
    elif isinstance(given, ast.Name):  # what its module assigns to the variable
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == given.id:
                yield from _names(node.value, tree)
    elif isinstance(given, ast.Call) and ast.unparse(given.func).endswith(".get"):
        yield from _names(given.args[1], tree)  # a table of exceptions, with a default
    elif isinstance(given, ast.JoinedStr):
        parts = (re.escape(str(p.value)) if isinstance(p, ast.Constant) else r"\w+"
                 for p in given.values)  # fmt: skip
        yield "".join(parts)
