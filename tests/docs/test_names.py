"""Commands, options, settings, paths and sections that any page names exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from quire import settings
from tests.docs import markdown
from tests.unit.test_deploy_files import is_command
from tools import docs

PAGES = [*docs.documents(), *sorted((docs.ROOT / "docs" / "adr").glob("*.md"))]
#: Pages that may name what was renamed or removed.
HISTORY = ("0025-attempts-count-the-first.md",)
#: Placeholders for the name of a setting.
PLACEHOLDERS = {"QUIRE_X", "QUIRE_X_FILE"}
#: Read by tests and the Makefile only.
OF_TESTS = {"QUIRE_REQUIRE_ALL"}


def each_page(*without: str) -> pytest.MarkDecorator:
    pages = [path for path in PAGES if path.name not in without]
    return pytest.mark.parametrize("path", pages, ids=lambda path: path.name)


def commands(text: str) -> list[str]:
    """List the `quire …` commands in inline code and in blocks, without comments."""
    inline = re.findall(r"`(quire [^`]+)`", text)
    lines = [line for _, block in re.findall(r"^```(sh|text)\n(.*?)^```$", text, re.M | re.S)
             for line in block.splitlines()]  # fmt: skip
    found = [re.sub(r"^(sudo )?(\.venv/bin/)?", "", line) for line in lines]
    return [*inline, *(line for line in found if line.startswith("quire "))]


@each_page("cli.md", *HISTORY)
def test_commands_and_options_of_a_page_exist(path: Path):
    unknown = []
    for command in commands(path.read_text()):
        words = shlex.split(command.replace("…", ""), comments=True)[1:]
        # What stands for a value is no part of the command's name.
        named = [word for word in words if not re.search(r"[A-Z\[(|]", word)]
        try:
            is_known = is_command(named)
        except KeyError:
            is_known = False
        if not is_known:
            unknown.append(command)
    assert unknown == []


@each_page(*HISTORY)
def test_settings_of_a_page_exist(path: Path):
    known = {name for name, _, _ in settings.described()} | PLACEHOLDERS | OF_TESTS
    named = set(re.findall(r"\bQUIRE_[A-Z_]+\b", path.read_text()))
    assert {name for name in named if name.removesuffix("_FILE") not in known} == set()


@each_page()
def test_files_that_a_page_names_exist(path: Path):
    pattern = r"`((?:quire|tools|tests|benchmarks|requirements|docs)/[\w./-]+)`"
    named = {name.rstrip("/") for name in re.findall(pattern, path.read_text())}
    assert {name for name in named if not (docs.ROOT / name).exists()} == set()


@each_page()
def test_sections_that_a_page_links_to_exist(path: Path):
    broken = []
    for target in re.findall(r"\]\(([^)\s]*#[^)\s]+)\)", path.read_text()):
        name, _, anchor = target.partition("#")
        if "//" not in name and anchor not in anchors(path.parent / name if name else path):
            broken.append(target)
    assert broken == []


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
    titles = [title.lower().strip() for title in re.findall(r"^#+ (.*)$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def test_the_groups_of_benchmarks_exist():
    from benchmarks.__main__ import app

    known = {each.callback.__name__ for each in app.registered_commands if each.callback}
    text = "".join(path.read_text() for path in [*PAGES, docs.ROOT / "Makefile"])
    named = set(re.findall(r"python -m benchmarks (\w+)", text))
    assert named == known
    assert re.findall(r"quire bench\b", markdown.read("docs/bench.md")) == []
