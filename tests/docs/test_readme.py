"""The README is true: every block of it runs, every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs import markdown
from tools import docs

README = "README.md"
#: Run by who runs this test, and cannot run inside it.
NOT_HERE = "make test\n"


@pytest.mark.timeout(400)
def test_every_block_of_the_readme_runs(home: Path):
    ran = []
    namespace: dict[str, Any] = {}
    with markdown.terminal(home) as shell:
        for at, block in enumerate(markdown.blocks(README)):
            if block.language == "sh" and block.text != NOT_HERE:
                ran += shell.run(block)
            elif block.language == "python":
                markdown.run_python(block, namespace, home, f"{README} block {at}")
    text = "".join(ran)
    assert "these two files are unreadable on purpose" in text
    assert "handbook.pdf" in text
    assert "ingestion.md" in text
    assert "hello Ada" in text
    assert "1,000 completed" in text


def test_the_readme_has_blocks_only_of_kinds_that_are_run():
    languages = {block.language for block in markdown.blocks(README)}
    assert languages == {"sh", "python", "mermaid"}
    assert NOT_HERE in [block.text for block in markdown.blocks(README)]


def test_the_readme_begins_with_one_sentence():
    first = markdown.read(README).split("\n\n")[1]
    assert first.count(". ") == 0
    assert first.endswith(".")


def test_the_handler_of_the_readme_has_five_lines():
    [block] = [b for b in markdown.blocks(README) if b.text.startswith("# greet.py")]
    code = [line for line in block.text.splitlines()[1:] if line.strip()]
    assert len(code) == 5


def test_each_promise_of_the_readme_names_a_test():
    cells = markdown.rows(markdown.section(README, "Guarantees"))
    unproved = [row[0] for row in cells if not re.search(r"\[`test_\w+`\]\(tests/", row[1])]
    assert unproved == []


def test_the_readme_and_the_guarantees_have_the_same_promises():
    told = [row[0].split()[0] for row in markdown.rows(markdown.section(README, "Guarantees"))]
    text = markdown.read("docs/guarantees.md")
    kept = [
        name
        for name, rest in re.findall(r"^## (G\d+) .*?\n\n(.*?)(?=^## |\Z)", text, re.M | re.S)
        if not rest.startswith("Not yet")
    ]
    assert told == kept


def test_the_readme_says_no_more_than_fits_two_screens():
    assert len(markdown.read(README).splitlines()) <= 150


def test_every_link_of_a_document_leads_to_a_file():
    broken = []
    for path in [*docs.documents(), *(docs.ROOT / "docs" / "adr").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{path.relative_to(docs.ROOT)}: {target}")
    assert broken == []
