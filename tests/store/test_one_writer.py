"""The state of a task and of a job is written by one module each, proved on the source itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: The only module that may write `state` of a table.
WRITERS = {
    "tasks": "quire/store/queue/transition.py",
    "jobs": "quire/store/queue/job_transition.py",
}
RAW = re.compile(r"\bupdate\s+(?:only\s+)?(\w+)\b.*\bset\b.*\bstate\b", re.IGNORECASE | re.DOTALL)


def written(source: str) -> Iterator[str]:
    """Yield the tables of whose rows a module may write the state."""
    tree = ast.parse(source)
    names = {name: name for name in WRITERS}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {a.asname: a.name for a in node.names if a.asname and a.name in WRITERS}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr):
            yield from (table for table in RAW.findall(ast.unparse(node)) if table in WRITERS)
        if isinstance(node, ast.Call) and (table := _updated(node, names)):
            yield table


def _updated(call: ast.Call, names: dict[str, str]) -> str | None:
    """Return the table of `update(table)….values(state=…)` and of an upsert that sets a state."""
    called = ast.unparse(call.func).rpartition(".")[2]
    if called == "upsert":
        return _table(call.args[1], names)
    if called not in ("values", "ordered_values") or not _may_set_state(call):
        return None
    inner: ast.AST = call
    while isinstance(inner, ast.Call | ast.Attribute):
        if isinstance(inner, ast.Call) and ast.unparse(inner.func) in ("sa.update", "update"):
            return _table(inner.args[0], names)
        if isinstance(inner, ast.Attribute) and inner.attr == "update":
            return _table(inner.value, names)
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    return None


def _may_set_state(call: ast.Call) -> bool:
    """Tell whether values are given by the name `state`, or by a name that cannot be read here."""
    if any(keyword.arg in (None, "state") for keyword in call.keywords):
        return True
    keys = [key for arg in call.args if isinstance(arg, ast.Dict) for key in arg.keys]
    named = [key.value if isinstance(key, ast.Constant) else None for key in keys]
    attributes = [key.attr for key in keys if isinstance(key, ast.Attribute)]
    is_computed = any(not isinstance(arg, ast.Dict) for arg in call.args)
    unknown = [key for key in keys if not isinstance(key, ast.Constant | ast.Attribute)]
    return "state" in named or "state" in attributes or is_computed or bool(unknown)


def _table(node: ast.expr, names: dict[str, str]) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr if node.attr in WRITERS else None
    return names.get(node.id) if isinstance(node, ast.Name) else None


def test_no_other_module_writes_the_state_of_a_task_or_a_job():
    found = [
        f"{path.relative_to(ROOT)} writes {table}.state"
        for path in sorted((ROOT / "quire").rglob("*.py"))
        for table in written(path.read_text())
        if str(path.relative_to(ROOT)) != WRITERS[table]
    ]
    assert found == []


def test_the_writers_write_it():
    for table, path in WRITERS.items():
        assert set(written((ROOT / path).read_text())) == {table}


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


@pytest.mark.parametrize(
    "source",
    [
        "sa.update(tasks).where(t.state == 'done').values(priority=1)",
        "sa.update(workers).values(state='dead')",
        "sa.select(tasks).where(t.state == 'done')",
    ],
)
def test_what_writes_no_state_is_left_alone(source: str):
    assert list(written(source)) == []
