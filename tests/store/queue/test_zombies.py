"""A zombie cannot write; and each fence in a statement is there for a scenario that needs it.

For each fenced statement a mutant is made, with that fence left out, and its scenario must fail.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import itertools
import textwrap
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import pytest

from quire.store.queue import claim, progress, settle, transition
from tests.store import scenarios
from tests.store.stage import Stage

Scenario = Callable[[Stage, ModuleType], None]
_numbers = itertools.count()


class Mutation(NamedTuple):
    module: ModuleType
    function: str
    text: str
    instead: str
    scenario: Scenario
    #: The module that the scenario uses, where the statement is in one that it imports.
    through: ModuleType | None = None

    def __str__(self) -> str:
        return f"{self.function}: {self.scenario.__name__}"


DROPPED = "t.fence > -1"
MUTATIONS = [
    Mutation(
        transition,
        "_statement",
        "t.fence == row.c.fence",
        DROPPED,
        scenarios.a_zombie_cannot_settle,
        settle,
    ),
    Mutation(settle, "renew", "t.fence == h.c.fence", DROPPED, scenarios.a_zombie_cannot_renew),
    Mutation(
        settle,
        "_still_held",
        "h.c.fence == t.fence",
        DROPPED,
        scenarios.a_zombie_cannot_look_alive,
    ),
    Mutation(
        settle,
        "_hold",
        't.fence == sa.bindparam("held")',
        DROPPED,
        scenarios.a_zombie_cannot_hold,
    ),
    Mutation(
        settle,
        "_held",
        "(row.id, row.fence) in wanted",
        "True",
        scenarios.a_stale_revocation_spares_the_heir,
    ),
    Mutation(
        transition,
        "effects",
        '{"fence": t.fence + 1}',
        '{"fence": t.fence}',
        scenarios.what_a_revocation_ended_cannot_be_settled,
        settle,
    ),
    Mutation(
        transition,
        "effects",
        '{"fence": t.fence + 1}',
        '{"fence": t.fence}',
        scenarios.what_a_reaper_took_back_has_another_fence,
        settle,
    ),
    Mutation(
        progress,
        "_write",
        "t.fence == p.c.fence",
        DROPPED,
        scenarios.a_zombie_cannot_report,
    ),
    Mutation(
        transition,
        "effects",
        '"fence": t.fence + 1,',
        '"fence": t.fence,',
        scenarios.a_claim_raises_the_fence,
        claim,
    ),
]


def mutant(mutation: Mutation) -> ModuleType:
    """Make a copy of a module in which one function lacks its fence."""
    function = inspect.getsource(getattr(mutation.module, mutation.function))
    assert function.count(mutation.text) == 1, "the statement was rewritten: adapt the mutation"
    changed = function.replace(mutation.text, mutation.instead)
    made = copy_of(inspect.getsource(mutation.module).replace(function, changed))
    if mutation.through is None:
        return made
    user = copy_of(inspect.getsource(mutation.through))
    user.__dict__.update(transition=made, Transition=made.Transition)
    return user


def copy_of(whole: str) -> ModuleType:
    spec = importlib.util.spec_from_loader(f"mutant_{next(_numbers)}", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    exec(compile(whole, module.__name__, "exec"), module.__dict__)  # noqa: S102
    return module


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_zombie_is_refused(stage: Stage, mutation: Mutation):
    mutation.scenario(stage, mutation.through or mutation.module)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_without_its_fence_the_zombie_gets_through(db, mutation: Mutation):
    with pytest.raises((AssertionError, KeyError)):
        mutation.scenario(Stage(db), mutant(mutation))


def test_every_fenced_statement_has_a_mutant():
    """Count the places that name a fence in a WHERE or raise it, and compare."""
    for module in (settle, progress, claim, transition):
        tree = ast.parse(textwrap.dedent(inspect.getsource(module)))
        named = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and _touches_a_fence(node)
        }
        covered = {m.function for m in MUTATIONS if m.module is module}
        assert named <= covered, module.__name__


def _touches_a_fence(function: ast.FunctionDef) -> bool:
    text = ast.unparse(function)
    compares = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Compare) and "fence" in ast.unparse(node)
    ]
    return bool(compares) or "'fence': t.fence + 1" in text
