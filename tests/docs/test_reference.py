"""Settings, errors, commands, words and charts in the documents are those of the code."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from quire import errors, settings
from quire.model.contracts import job
from quire.model.states import JOB_MOVES, TASK_MOVES, JobState, Reason, TaskState
from quire.runtime.child.context import Context
from tests.docs import markdown
from tools import docs


@pytest.mark.parametrize("path", docs.documents(), ids=lambda path: path.name)
def test_generated_parts_are_up_to_date(path: Path):
    assert path.read_text() == docs.up_to_date(path), "run .venv/bin/python tools/docs.py"


def test_every_part_that_can_be_generated_is_in_a_document():
    used = {
        name
        for path in docs.documents()
        for name in re.findall(r"<!-- generated: ([a-z-]+) -->", path.read_text())
    }
    assert used == set(docs.PARTS)


def test_every_setting_has_its_sentence():
    table = {row[0]: row[2] for row in markdown.rows(markdown.read("docs/settings.md"))}
    assert table == {f"`{name}`": sentence for name, _, sentence in settings.described()}
    assert [name for name, sentence in table.items() if not sentence.endswith(".")] == []


@pytest.mark.parametrize("document", ["docs/settings.md", "docs/operations.md"])
def test_a_quire_toml_of_the_documents_is_accepted(document: str, tmp_path: Path):
    [block] = [b for b in markdown.blocks(document) if b.language == "toml"]
    (tmp_path / "quire.toml").write_text(block.text)
    found = settings.load({}, home=tmp_path)
    for name, value in tomllib.loads(block.text).items():
        assert getattr(found, name) == (tuple(value) if isinstance(value, list) else value)


def test_every_error_is_documented_with_its_exit_code():
    classes = {
        name: each.exit_code
        for name, each in vars(errors).items()
        if inspect.isclass(each) and issubclass(each, errors.QuireError)
    }
    rows = markdown.rows(markdown.read("docs/errors.md").partition("What a handler raises")[0])
    assert {row[0].strip("`"): int(row[2]) for row in rows} == classes
    assert [row[0] for row in rows if not (row[1] and row[3])] == []


def test_the_tree_of_errors_is_the_tree_of_classes():
    tree = errors.__doc__ or ""
    path: list[str] = []
    for line in tree.splitlines():
        if not (found := re.match(r"([│├└─ ]*)(\w+)", line)) or not hasattr(errors, found[2]):
            continue
        depth = len(found[1]) // 4
        path = [*path[:depth], found[2]]
        if depth:
            assert getattr(errors, path[-1]).__bases__ == (getattr(errors, path[-2]),), line


def test_every_command_is_documented():
    from typer.main import get_command

    from quire.cli.commands import app

    def paths(command: Any, path: str) -> list[str]:
        inner = getattr(command, "commands", {})
        return [path, *(p for name in inner for p in paths(inner[name], f"{path} {name}"))]

    headings = re.findall(r"^## (.*)$", markdown.read("docs/cli.md"), re.M)
    assert sorted(headings) == sorted(paths(get_command(app), "quire"))


def test_the_list_of_commands_says_what_each_command_says_of_itself():
    from quire.cli.commands import COMMANDS, _Commands

    said = {name: command.get_short_help_str(100) for name, command in _Commands().items()}
    assert said == {name: sentence for name, (_, sentence) in COMMANDS.items()}


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("States of a task", list(TaskState)),
        ("Reasons of a blocked task", list(Reason)),
        ("States of a job", list(JobState)),
        ("Moves", [*TASK_MOVES, *JOB_MOVES]),
    ],
)
def test_the_glossary_has_every_state_reason_and_move(title: str, words: list[str]):
    table = markdown.rows(markdown.section("docs/glossary.md", title))
    assert sorted(row[0].strip("`") for row in table) == sorted({str(word) for word in words})


def test_the_glossary_has_each_word_once():
    words = [row[0] for row in markdown.rows(markdown.read("docs/glossary.md").split("\n## ")[0])]
    assert len(set(words)) == len(words)


def test_every_option_of_the_mark_is_documented_with_its_default():
    options = {
        name: each
        for name, each in inspect.signature(job).parameters.items()
        if each.kind is not each.VAR_KEYWORD  # takes old names, to refuse them by the new one
    }
    table = {
        row[0].strip("`"): row[1].strip("`")
        for row in markdown.rows(markdown.section("docs/plugins.md", "Options of @job"))
    }
    assert list(table) == sorted(options, key=list(table).index)
    wrong = [
        f"{name}: {table[name]}, not {each.default!r}"
        for name, each in options.items()
        if not _is_told(table[name], each.default)
    ]
    assert wrong == []


def test_everything_a_handler_may_ask_of_its_context_is_documented():
    text = markdown.read("docs/plugins.md")
    own = {"close", "use"}  # for who runs the handler, not for the handler
    asked = [n for n in vars(Context) if not n.startswith("_") and n not in own]
    assert [name for name in asked if f"ctx.{name}" not in text] == []


def test_every_measurement_of_the_bench_is_named():
    from benchmarks.queue.command import MEASURES

    text = markdown.read("docs/bench.md")
    assert [name for name in MEASURES if f"`{name}`" not in text] == []


def _is_told(cell: str, default: object) -> bool:
    if default is inspect.Parameter.empty or default == "":
        return cell == ""
    if default is None:
        return cell == "none"
    if isinstance(default, float):
        return cell == f"{default:g}"
    return cell.strip('"') == str(default)
