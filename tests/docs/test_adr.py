"""Decisions are numbered without a gap, fit a page, and have the same three parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import markdown

FILES = sorted((markdown.ROOT / "docs" / "adr").glob("*.md"))
ONE_PAGE = 60


def test_decisions_are_numbered_without_a_gap():
    assert [int(path.name[:4]) for path in FILES] == list(range(1, len(FILES) + 1))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_decision_fits_a_page_and_says_context_decision_and_consequences(path: Path):
    text = path.read_text()
    assert len(text.splitlines()) <= ONE_PAGE
    assert text.startswith(f"# {int(path.name[:4])}. ")
    assert re.findall(r"^## (.*)$", text, re.M) == ["Context", "Decision", "Consequences"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_functions_and_columns_that_a_decision_names_exist(path: Path):
    # A name before the dot is a module or a table, or it is all the name of an event.
    code: dict[str, str] = {}
    for module in sorted((markdown.ROOT / "quire").rglob("*.py")):
        code[module.stem] = code.get(module.stem, "") + module.read_text()
    everything = "".join(code.values())
    schema = markdown.ROOT / "quire" / "store" / "db" / "schema"
    columns = "".join(module.read_text() for module in sorted(schema.glob("*.py")))
    gone = [
        f"{noun}.{name}"
        for noun, name in re.findall(r"`(?:\w+/)*(\w+)\.(_?\w+)`", path.read_text())
        if noun in code and name not in {"py", "txt"}
        if not re.search(rf"\b{name}\b", code[noun] + columns)
        and f'"{noun}.{name}"' not in everything
    ]
    assert gone == []
