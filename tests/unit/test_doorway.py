"""The door of a worker that a broker serves: whom it lets claim, and when a message is let go."""

from __future__ import annotations

import selectors
import threading
from collections.abc import Iterator

import pytest

from quire.celery import claim_gate
from quire.celery.claim_gate import Doorway, OpenDoor
from tests.waiting import stays, until

NEVER = 600.0


@pytest.fixture
def door() -> Iterator[Doorway]:
    door = Doorway("redis://there", NEVER)
    yield door
    door.close()


def knock(door: Doorway) -> threading.Thread:
    """Bring a message, and wait until the worker could have seen it."""
    before = len(door._visits)
    thread = threading.Thread(target=door.knock)
    thread.start()
    until(lambda: len(door._visits) > before or not thread.is_alive())
    return thread


def settle(door: Doorway, *unsettled: tuple[int, int]) -> None:
    door.let_go(lambda: set(unsettled))


def test_without_a_message_nothing_may_be_claimed(door):
    assert door.places(4) == 0
    assert door.ahead(4) == 0


def test_each_message_opens_one_slot_and_is_let_go_when_its_task_is_settled(door):
    first, second = knock(door), knock(door)
    assert door.places(4) == 2
    door.claimed([(1, 1), (2, 1)], is_all=True)
    assert door.places(4) == 0
    settle(door, (1, 1), (2, 1))
    assert first.is_alive() and second.is_alive()
    settle(door, (2, 1))
    first.join(10)
    assert second.is_alive()
    settle(door)
    second.join(10)
    assert not second.is_alive()


def test_a_message_that_finds_nothing_is_let_go_at_once(door):
    thread = knock(door)
    door.claimed([], is_all=True)
    settle(door)
    thread.join(10)
    assert not thread.is_alive()


def test_short_tasks_share_a_message_for_a_while(door, monkeypatch):
    thread = knock(door)
    door.claimed([(n, 1) for n in range(100)], is_all=False)
    assert door.ahead(2) == 1
    settle(door)
    assert thread.is_alive() and door.places(2) == 1
    monkeypatch.setattr(claim_gate, "TURN", 0.0)
    second = knock(door)
    door.claimed([(200, 1)], is_all=False)
    settle(door)
    second.join(10)
    assert not second.is_alive()


def test_a_message_is_not_held_for_longer_than_brokers_allow(door, monkeypatch):
    monkeypatch.setattr(claim_gate, "HOLD", 0.0)
    thread = knock(door)
    door.claimed([(1, 1)], is_all=True)
    settle(door, (1, 1))
    thread.join(10)
    assert not thread.is_alive()


def test_a_worker_that_hears_nothing_looks_by_itself_and_goes_on_while_it_finds_work():
    door = Doorway("redis://there", 0.01)
    until(door.is_due)
    assert door.places(3) == 3
    door.claimed([], is_all=True)
    assert door.places(3) == 0 and door.alone_since is None
    until(door.is_due)
    door.claimed([(1, 1)], is_all=False)
    assert door.alone_since is not None
    assert door.places(3) == 3 and door.ahead(3) == 3
    thread = knock(door)
    assert door.alone_since is None
    assert door.places(3) == 1
    door.close()
    thread.join(10)


def test_a_knock_and_a_ring_end_the_wait_of_the_worker(door):
    with selectors.DefaultSelector() as selector:
        bell = door.bell(selector)
        assert not selector.select(0)
        thread = knock(door)
        assert selector.select(10)
        bell.hear()
        assert not selector.select(0)
        door.ring()
        assert bell.rung == 1 and selector.select(10)
    settle(door)
    thread.join(10)
    assert not thread.is_alive()


def test_a_worker_that_leaves_lets_go_of_all_and_opens_to_none(door):
    threads = [knock(door) for _ in range(3)]
    door.claimed([(1, 1), (2, 1), (3, 1)], is_all=True)
    door.close()
    for thread in [*threads, knock(door)]:
        thread.join(10)
        assert not thread.is_alive()


def test_without_a_broker_the_door_is_always_open():
    door = OpenDoor()
    assert door.places(3) == 3 and door.ahead(2) == 2
    assert stays(lambda: not door.is_due(), during=0.05)
