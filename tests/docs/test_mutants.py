"""The mutants of `make mutants` fit today's code: each text is there once, each test exists."""

from __future__ import annotations

from collections import Counter

from tools import docs, mutants


def test_every_mutant_applies():
    counts = {
        each.name: (mutants.ROOT / each.file).read_text().count(each.old)
        for each in mutants.MUTANTS
    }
    assert {name: count for name, count in counts.items() if count != 1} == {}
    assert [each.name for each in mutants.MUTANTS if each.old == each.new] == []


def test_every_mutant_names_tests_that_exist():
    known = docs.tests()
    for each in mutants.MUTANTS:
        assert each.tests, each.name
        for node in each.nodes:
            path, name = node.split("::")
            assert f"def {name}(" in (mutants.ROOT / path).read_text(), node
            assert name in known


def test_no_mutant_is_listed_twice():
    names = Counter(each.name for each in mutants.MUTANTS)
    assert [name for name, count in names.items() if count > 1] == []
