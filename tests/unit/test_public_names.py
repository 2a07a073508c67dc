"""The public names of the package: few, sorted, loaded when first used."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import quire

MOST = 25


def test_the_names_are_few_and_sorted():
    assert len(quire.__all__) <= MOST
    assert quire.__all__ == sorted(quire.__all__)
    assert sorted(quire._HOMES) == quire.__all__


@pytest.mark.parametrize("name", quire.__all__)
def test_every_name_is_there_and_is_the_one_of_its_module(name: str):
    home = importlib.import_module(quire._HOMES[name])
    assert getattr(quire, name) is getattr(home, name)


def test_a_name_that_is_not_there_is_said():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = quire.nothing


def test_marking_a_plugin_loads_no_parser_no_network_and_no_database():
    heavy = ("httpcore", "httpx", "numpy", "pikepdf", "pypdfium2", "sqlalchemy", "quire.app")
    program = (
        "import sys; from quire import Item, Page, job, parser, source\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout.strip() == "[]", ended.stderr
