"""The claim gate of a worker with a broker: who may claim, and when a message is acknowledged."""

from __future__ import annotations

import selectors
import threading
from collections.abc import Iterator

import pytest

from quire.celery.claim_gate import ACK_SECONDS, CLAIM_SECONDS, BrokerGate
from quire.clock import FakeClock
from quire.runtime.worker.claim_gate import ClaimGate
from tests.waiting import until

SILENCE = 600.0


class Time:
    """A monotonic clock that moves only when told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def gate(time: Time) -> Iterator[BrokerGate]:
    gate = BrokerGate("redis://there", SILENCE, monotonic=time, clock=FakeClock(wall=5_000.0))
    yield gate
    gate.close()


def deliver(gate: BrokerGate) -> threading.Thread:
    """Deliver a message in a thread, and wait until the worker can see it."""
    before = len(gate._deliveries)
    thread = threading.Thread(target=gate.deliver)
    thread.start()
    until(lambda: len(gate._deliveries) > before or not thread.is_alive())
    return thread


def settle(gate: BrokerGate, *unsettled: tuple[int, int]) -> None:
    gate.release(lambda: set(unsettled))


def test_without_a_message_nothing_may_be_claimed(gate):
    assert gate.slots(4) == 0
    assert gate.prefetch_slots(4) == 0


def test_each_message_opens_one_slot_and_is_acknowledged_when_its_task_is_settled(gate):
    first, second = deliver(gate), deliver(gate)
    assert gate.slots(4) == 2
    gate.claimed([(1, 1), (2, 1)], is_queue_empty=True)
    assert gate.slots(4) == 0
    settle(gate, (1, 1), (2, 1))
    assert first.is_alive() and second.is_alive()
    settle(gate, (2, 1))
    first.join(10)
    assert second.is_alive()
    settle(gate)
    second.join(10)
    assert not second.is_alive()


def test_a_message_that_finds_nothing_is_acknowledged_at_once(gate):
    thread = deliver(gate)
    gate.claimed([], is_queue_empty=True)
    settle(gate)
    thread.join(10)
    assert not thread.is_alive()


def test_short_tasks_share_a_message_for_a_while(gate, time):
    thread = deliver(gate)
    gate.claimed([(n, 1) for n in range(100)], is_queue_empty=False)
    assert gate.prefetch_slots(2) == 1
    settle(gate)
    assert thread.is_alive() and gate.slots(2) == 1
    time.advance(CLAIM_SECONDS)
    assert gate.slots(2) == 0
    settle(gate)
    thread.join(10)
    assert not thread.is_alive()


def test_a_message_is_not_held_for_longer_than_brokers_allow(gate, time):
    thread = deliver(gate)
    gate.claimed([(1, 1)], is_queue_empty=True)
    time.advance(ACK_SECONDS - 1)
    settle(gate, (1, 1))
    assert thread.is_alive()
    time.advance(1)
    settle(gate, (1, 1))
    thread.join(10)
    assert not thread.is_alive()


def test_a_worker_polls_when_the_broker_is_silent_and_goes_on_while_it_finds_work(gate, time):
    assert not gate.should_poll()
    time.advance(SILENCE)
    assert gate.should_poll() and not gate.should_poll()
    assert gate.slots(3) == 3
    gate.claimed([], is_queue_empty=True)
    assert gate.slots(3) == 0 and gate.polling_since is None
    time.advance(SILENCE)
    assert gate.should_poll()
    gate.claimed([(1, 1)], is_queue_empty=False)
    assert gate.polling_since == 5_000.0
    assert gate.slots(3) == 3 and gate.prefetch_slots(3) == 3
    thread = deliver(gate)
    assert gate.polling_since is None
    assert gate.slots(3) == 1
    gate.close()
    thread.join(10)


def test_a_message_and_a_stop_request_wake_the_worker(gate):
    with selectors.DefaultSelector() as selector:
        source = gate.watch(selector)
        assert not selector.select(0)
        thread = deliver(gate)
        assert selector.select(10)
        source.clear()
        assert not selector.select(0)
        gate.request_stop()
        assert source.stop_requests == 1 and selector.select(10)
    settle(gate)
    thread.join(10)
    assert not thread.is_alive()


def test_a_worker_that_ends_acknowledges_all_and_accepts_none(gate):
    threads = [deliver(gate) for _ in range(3)]
    gate.claimed([(1, 1), (2, 1), (3, 1)], is_queue_empty=True)
    gate.close()
    for thread in [*threads, deliver(gate)]:
        thread.join(10)
        assert not thread.is_alive()


def test_without_a_broker_the_gate_is_always_open():
    gate = ClaimGate()
    assert gate.slots(3) == 3 and gate.prefetch_slots(2) == 2
    assert not gate.should_poll() and gate.next_deadline() == float("inf")
