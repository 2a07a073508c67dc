"""Generates the parts of the documentation that come from the code, and the links to tests.

    .venv/bin/python tools/docs.py            write them
    .venv/bin/python tools/docs.py --check    list the files that are out of date, exit with 1

A generated part is between `<!-- generated: NAME -->` and `<!-- end -->`. A link whose text is the
name of a test gets the path of the test's file.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 90
#: Width of the module names in the code map.
MAP_WIDTH = 108
_PART = re.compile(
    r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL | re.MULTILINE
)
_TEST_LINK = re.compile(r"\[`?(?P<name>test_\w+)`?\]\([^)]*\)")


def documents() -> list[Path]:
    """Return the documents that may have generated parts."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def up_to_date(path: Path) -> str:
    """Return a document's text with every generated part regenerated."""
    text = _PART.sub(
        lambda found: found[1] + PARTS[found["name"]]() + "\n" + found[3], path.read_text()
    )
    return _TEST_LINK.sub(lambda found: _test_link(found["name"], path, found[0]), text)


@functools.cache
def tests() -> dict[str, Path]:
    """Map each test function to its file; if two files use a name, to the first."""
    found: dict[str, Path] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.setdefault(node.name, path)
    return found


def settings() -> str:
    """Write the settings as one table per topic."""
    from quire.settings import by_topic, described

    rows = {name: (default, sentence) for name, default, sentence in described()}
    parts = []
    for topic, names in by_topic().items():
        lines = [f"| `{n}` | {_default(n, rows[n][0])} | {rows[n][1]} |" for n in names]
        table = ["| setting | default | what it does |", "|---|---|---|", *lines]
        parts.append("\n".join([f"## {topic}", "", *table]))
    return "\n" + "\n\n".join(parts) + "\n"


def errors() -> str:
    """Return the tree of errors from the docstring of `quire.errors`."""
    from quire import errors as module

    return _fenced("text", (module.__doc__ or "").split("\n\n", 1)[1].rstrip())


def task_chart() -> str:
    """Return the state chart of a task."""
    from quire.model.states import TASK_MOVES, chart

    return _fenced("mermaid", chart(TASK_MOVES))


def job_chart() -> str:
    """Return the state chart of a job."""
    from quire.model.states import JOB_MOVES, chart

    return _fenced("mermaid", chart(JOB_MOVES))


def document_chart() -> str:
    """Return the state chart of a document."""
    from quire.model.states import DOCUMENT_MOVES, chart

    return _fenced("mermaid", chart(DOCUMENT_MOVES))


def corpus_settings() -> str:
    """Return a table of the corpus settings."""
    from quire.model.pipeline import described

    rows = [
        f"| `{name}` | {f'`{default}`' if default != '' else 'empty'} | {sentence} |"
        for name, default, sentence in described()
    ]
    return "\n".join(["| setting | default | what it does |", "|---|---|---|", *rows])


def code_map() -> str:
    """Return the tree of the package, with the first docstring line of packages and modules."""
    return _fenced("text", "\n".join(_branch(ROOT / "quire", 0)))


def invariants() -> str:
    """Return a table of the invariants that `quire doctor` checks."""
    from quire.store.doctor.queue_invariants import INVARIANTS

    rows = [f"| `{each.name}` | {each.sentence} |" for each in INVARIANTS]
    schema = "| `schema.version` | The schema is the version that this Quire knows. |"
    return "\n".join(["| invariant | what must be true |", "|---|---|", schema, *rows])


def invariant_names() -> str:
    """Return the names of the invariants, grouped by table."""
    from quire.store.doctor.queue_invariants import INVARIANTS

    groups: dict[str, list[str]] = {}
    for noun, _, rest in (each.name.partition(".") for each in INVARIANTS):
        groups.setdefault(noun, []).append(rest)
    parts = [f"`{noun}`: {', '.join(names)}" for noun, names in groups.items()]
    return textwrap.fill("; ".join(parts) + ".", WIDTH + 10)


def commands() -> str:
    """Return the help of every command."""
    from typer.main import get_command

    from quire.cli.commands import app

    return "\n\n".join(_help_of(get_command(app), "quire", None))


PARTS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "errors": errors,
    "task-chart": task_chart,
    "job-chart": job_chart,
    "document-chart": document_chart,
    "corpus-settings": corpus_settings,
    "code-map": code_map,
    "invariants": invariants,
    "invariant-names": invariant_names,
    "commands": commands,
}


def main() -> int:
    """Write the generated parts, or with --check compare them; returns the exit code."""
    stale = [path for path in documents() if up_to_date(path) != path.read_text()]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)}: out of date; run tools/docs.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(up_to_date(path))
        print(f"{path.relative_to(ROOT)}: written")
    return 0


def _test_link(name: str, path: Path, as_it_is: str) -> str:
    target = tests().get(name)
    if target is None:
        return as_it_is  # tests/docs reports it
    return f"[`{name}`]({os.path.relpath(target, path.parent)})"


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _default(name: str, default: Any) -> str:
    if name == "QUIRE_HOME":
        return "see above"
    if isinstance(default, bool):
        return "`true`" if default else "`false`"
    if isinstance(default, tuple):
        return f"`{','.join(default)}`" if default else "empty"
    if isinstance(default, int | float):
        return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
    return f"`{default}`" if str(default) else "empty"


def _branch(folder: Path, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}{folder.name}/".ljust(20) + _first_line(folder / "__init__.py")
    modules = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    if depth == 0:
        for path in modules:
            yield f"  {path.name}".ljust(20) + _first_line(path)
    elif modules:
        names = " ".join(path.stem for path in modules)
        margin = " " * 20
        yield from textwrap.wrap(names, MAP_WIDTH, initial_indent=margin, subsequent_indent=margin)
    for inner in sorted(folder.iterdir()):
        if (inner / "__init__.py").exists() and inner.name != "migrations":
            yield from _branch(inner, depth + 1)


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n", 1)[0]


def _help_of(command: Any, name: str, parent: Any) -> Iterator[str]:
    context = command.context_class(
        command, info_name=name, parent=parent, terminal_width=WIDTH, **command.context_settings
    )
    path = context.command_path
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    yield f"## {path}\n\n" + _fenced("text", "\n".join(lines))
    if hasattr(command, "list_commands"):
        for each in command.list_commands(context):
            yield from _help_of(command.get_command(context, each), each, context)


if __name__ == "__main__":
    sys.exit(main())
