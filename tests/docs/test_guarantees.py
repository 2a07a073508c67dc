"""Each promise names tests that exist and run on both databases."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests import selection
from tests.docs import markdown
from tools import docs

GUARANTEES = "docs/guarantees.md"
THREATS = "docs/threat-model.md"
PROMISES = [f"G{number}" for number in range(1, 14)]


def promises() -> dict[str, str]:
    """Return the text of each promise."""
    text = markdown.read(GUARANTEES)
    return dict(re.findall(r"^## (G\d+) [^\n]*\n\n(.*?)(?=^## |\Z)", text, re.M | re.S))


def linked(text: str) -> set[str]:
    """Return the tests that a text links to."""
    return set(re.findall(r"\[`?(test_\w+)`?\]", text))


@pytest.fixture(scope="module")
def collected() -> dict[str, set[str]]:
    """The parameters of each test that pytest finds, slow ones too."""
    folders = ["store", "property", "integration", "chaos", "runtime", "unit", "cli"]
    there = [f"tests/{name}" for name in folders if (docs.ROOT / "tests" / name).is_dir()]
    options = ["--collect-only", "-q", "-m", "", "-p", "no:cacheprovider", "--no-header"]
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *there],
        cwd=docs.ROOT,
        env={name: text for name, text in os.environ.items() if not name.startswith("QUIRE_")},
        capture_output=True,
        text=True,
    )
    found: dict[str, set[str]] = {}
    for line in listed.stdout.splitlines():
        if named := re.search(r"::(\w+)(?:\[(.*)\])?$", line):
            found.setdefault(named[1], set()).add(named[2] or "")
    assert found, listed.stdout + listed.stderr
    return found


def test_every_promise_is_there_in_order():
    assert list(promises()) == PROMISES


def test_each_border_of_the_threat_model_has_a_promise_what_is_left_and_tests():
    borders = re.findall(r"^## ([^\n]*)\n\n(.*?)(?=^## |\Z)", markdown.read(THREATS), re.M | re.S)
    assert len(borders) == 11
    for title, text in borders:
        assert all(f"**{word}**" in text for word in ("Promise.", "Held by.", "Left.")), title
        assert len(linked(text)) >= 3, title


@pytest.mark.parametrize("document", ["README.md", GUARANTEES, THREATS])
def test_every_test_that_is_named_exists(document: str):
    known = docs.tests()
    assert sorted(linked(markdown.read(document)) - set(known)) == []


def test_a_promise_that_is_not_kept_yet_says_so_and_names_no_test():
    not_yet = {name: text for name, text in promises().items() if text.startswith("Not yet")}
    assert list(not_yet) == []
    assert [name for name, text in not_yet.items() if linked(text)] == []


def test_every_promise_that_is_kept_is_proved_on_both_databases(collected: dict[str, set[str]]):
    unproved = []
    for name, text in promises().items():
        if text.startswith("Not yet"):
            continue
        parameters = " ".join(p for test in linked(text) for p in collected.get(test, ()))
        if not all(word in parameters for word in ("sqlite", "postgres")):
            unproved.append(name)
    assert unproved == []


def test_every_test_that_is_named_in_the_readme_runs_on_both_databases(
    collected: dict[str, set[str]],
):
    lame = [
        test
        for test in sorted(linked(markdown.read("README.md")))
        if not all(word in " ".join(collected.get(test, ())) for word in ("sqlite", "postgres"))
    ]
    assert lame == []


def test_what_make_test_leaves_out_exists_and_is_no_test_of_a_promise():
    assert selection.unknown(docs.tests()) == []
    assert [each.test for each in selection.LATER if each.test in selection.guaranteed()] == []
