"""A state is written by one module for each table, proved on the source itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "a table in a variable"
#: The only module that may write `state` of a table.
WRITERS = {
    "tasks": "quire/store/queue/transition.py",
    "jobs": "quire/store/queue/job_transition.py",
    "documents": "quire/store/documents/transition.py",
    "generations": "quire/store/documents/transition.py",
    VARIABLE: "quire/store/documents/transition.py",
}
#: Tables that no other module may update by names of columns that cannot be read in the source.
COMPUTED = ("tasks", "jobs")
RAW = re.compile(r"\bupdate\s+(?:only\s+)?(\w+)\b.*\bset\b.*\bstate\b", re.IGNORECASE | re.DOTALL)


def written(source: str) -> Iterator[str]:
    """Yield the tables of whose rows a module may write the state."""
    tree = ast.parse(source)
    names = {name: name for name in WRITERS}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name: a.name for a in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            yield from (table for table in RAW.findall(ast.unparse(node)) if table in WRITERS)
        if isinstance(node, ast.Call) and (table := _updated(node, names)):
            yield table


def _updated(call: ast.Call, names: dict[str, str]) -> str | None:
    """Return the table of `update(table)….values(state=…)` and of an upsert that sets a state."""
    called = ast.unparse(call.func).rpartition(".")[2]
    if called == "upsert":
        table = _table(call.args[1], names)
        return table if table in COMPUTED else None
    if called not in ("values", "ordered_values"):
        return None
    inner: ast.AST = call
    table = None
    while isinstance(inner, ast.Call | ast.Attribute):
        if isinstance(inner, ast.Call) and ast.unparse(inner.func) in ("sa.update", "update"):
            table = _table(inner.args[0], names)
            break
        if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "sa.insert":
            return None
        if isinstance(inner, ast.Attribute) and inner.attr == "update":
            table = _table(inner.value, names)
            break
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    else:
        table = VARIABLE if isinstance(inner, ast.Name) else None
    if _names_state(call) or (table in COMPUTED and _is_computed(call)):
        return table
    return None


def _names_state(call: ast.Call) -> bool:
    keys = [key for arg in call.args if isinstance(arg, ast.Dict) for key in arg.keys]
    named = [key.value for key in keys if isinstance(key, ast.Constant)]
    attributes = [key.attr for key in keys if isinstance(key, ast.Attribute)]
    return "state" in [*named, *attributes, *(keyword.arg for keyword in call.keywords)]


def _is_computed(call: ast.Call) -> bool:
    """Tell whether names of columns are given that cannot be read here."""
    keys = [key for arg in call.args if isinstance(arg, ast.Dict) for key in arg.keys]
    return (
        any(keyword.arg is None for keyword in call.keywords)
        or any(not isinstance(arg, ast.Dict) for arg in call.args)
        or any(not isinstance(key, ast.Constant | ast.Attribute) for key in keys)
    )


def _table(node: ast.expr, names: dict[str, str]) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr if node.attr in WRITERS else None
    name = names.get(node.id, VARIABLE) if isinstance(node, ast.Name) else None
    return name if name in WRITERS else None


def test_no_other_module_writes_a_state():
    found = [
        f"{path.relative_to(ROOT)} writes {table}.state"
        for path in sorted((ROOT / "quire").rglob("*.py"))
        for table in written(path.read_text())
        if str(path.relative_to(ROOT)) != WRITERS[table]
    ]
    assert found == []


@pytest.mark.parametrize("table", ["tasks", "jobs", VARIABLE])
def test_the_writers_write_it(table: str):
    assert set(written((ROOT / WRITERS[table]).read_text())) == {table}


@pytest.mark.parametrize(
    "source",
    [
        "sa.update(tasks).where(x).values(state='done', reason=None)",
        "sa.update(tasks).values({'state': 'done'}).returning(t.id)",
        "sa.update(tasks).values({t.state: 'done'})",
        "sa.update(tasks).values(**values)",
        "sa.update(tasks).values(values)",
        "sa.update(queue.tasks).values({f'{name}': 1})",
        "from quire.store.db.schema.queue import tasks as rows\nsa.update(rows).values(state=1)",
        "tasks.update().where(x).values(state=1)",
        "dialect.upsert(conn, tasks, row, ['id'], names)",
        "conn.exec_driver_sql('UPDATE tasks SET reason = NULL, state = ?')",
        "conn.exec_driver_sql(f'update tasks set state = {state}')",
    ],
)
def test_a_second_writer_is_found(source: str):
    assert set(written(source)) == {"tasks"}


def test_an_update_that_is_built_in_steps_is_found():
    assert set(written("change = sa.update(tasks)\nchange.values(state=1)")) == {VARIABLE}


@pytest.mark.parametrize(
    "source",
    [
        "sa.update(tasks).where(t.state == 'done').values(priority=1)",
        "from quire.store.db.schema.queue import workers\nsa.update(workers).values(state='dead')",
        "sa.select(tasks).where(t.state == 'done')",
    ],
)
def test_what_writes_no_state_is_left_alone(source: str):
    assert list(written(source)) == []
