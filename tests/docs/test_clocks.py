"""Who reads a clock. Stored times come from `quire/clock.py` or the database, as arguments.

Monotonic clocks measure timeouts and durations inside one process and are never stored, so any
module may read them; the worker loop and the claim gate take theirs as a parameter, so that tests
can move time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Modules and packages that read the wall clock, and why they may.
WALL_CLOCK = {
    "quire/clock.py": "the one source of stored times",
    "quire/format.py": "shows how long ago something happened",
    "quire/cli/": "resolves a relative start time",
    "quire/fetch/blobs/cache.py": "compares with the modification times of files",
    "quire/api/page_renderer.py": "compares with the modification times of folders",
}
WALL_CALLS = {
    ("time", "time"), ("time", "time_ns"), ("time", "gmtime"), ("time", "localtime"),
    ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"),
}  # fmt: skip
#: Modules whose monotonic clock is injected.
INJECTED = ("quire/runtime/worker/loop.py", "quire/celery/claim_gate.py")


def calls(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (module or class, function) of each call, also of names imported from `time`."""
    direct = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id in direct:
            yield "time", direct[function.id]
        elif isinstance(function, ast.Attribute):
            owner = function.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            # gmtime and localtime read a clock only without an argument.
            if not (node.args and function.attr in ("gmtime", "localtime")):
                yield name, function.attr


def modules() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted((ROOT / "quire").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def test_only_the_listed_modules_read_the_wall_clock():
    found = {name for name, tree in modules() if WALL_CALLS & set(calls(tree))}
    unlisted = {name for name in found if not name.startswith(tuple(WALL_CLOCK))}
    assert unlisted == set(), "take the time as an argument, or add the module with a reason"
    unused = [each for each in WALL_CLOCK if not any(name.startswith(each) for name in found)]
    assert unused == []


def test_the_worker_loop_and_the_claim_gate_take_their_clock_as_a_parameter():
    for name, tree in modules():
        if name in INJECTED:
            assert ("time", "monotonic") not in set(calls(tree)), name
