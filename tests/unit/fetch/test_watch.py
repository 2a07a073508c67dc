"""Watching: a file is taken when it has stayed the same, and once."""

from __future__ import annotations

from quire.fetch.items import Item
from quire.fetch.sources.watch import find_stable


def item(name: str, size: int, mtime: float = 1.0) -> Item:
    return Item(f"file:///{name}", name, size, mtime)


def test_a_file_is_taken_once_it_stayed_the_same_and_only_once():
    first = find_stable({}, [item("a", 1)], 100.0)
    assert first.stable == []
    assert first.next_at == 105.0
    growing = find_stable(first.observations, [item("a", 2)], 104.0)
    assert growing.stable == []
    assert growing.next_at == 109.0
    early = find_stable(growing.observations, [item("a", 2)], 108.9)
    assert early.stable == []
    ripe = find_stable(early.observations, [item("a", 2)], 109.0)
    assert [each.name for each in ripe.stable] == ["a"]
    again = find_stable(ripe.observations, [item("a", 2)], 200.0)
    assert again.stable == []
    assert again.next_at == 230.0


def test_a_file_that_changes_later_is_taken_again():
    seen = find_stable(find_stable({}, [item("a", 1)], 0.0).observations, [item("a", 1)], 5.0)
    changed = find_stable(seen.observations, [item("a", 1, mtime=2.0)], 50.0)
    assert changed.stable == []
    assert [
        each.mtime for each in find_stable(changed.observations, [item("a", 1, 2.0)], 55.0).stable
    ] == [2.0]


def test_a_file_that_goes_is_reported():
    before = find_stable({}, [item("a", 1), item("b", 1)], 0.0)
    after = find_stable(before.observations, [item("b", 1)], 1.0)
    assert after.gone == ["file:///a"]
    assert list(after.observations) == ["file:///b"]
