"""When a task tries again, and where it stands in the order: pure functions."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from quire.model.fair import next_tag, start
from quire.model.retry import delay_after_error


def test_delays_double_from_the_first_to_the_most():
    found = [delay_after_error(n, 60.0, 300.0, 0.5) for n in range(1, 6)]
    assert found == [60, 120, 240, 300, 300]


def test_jitter_spreads_a_delay_by_its_share_to_both_sides():
    found = [round(delay_after_error(1, 100.0, 1000.0, s), 6) for s in (0.0, 0.5, 1.0)]
    assert found == [80.0, 100.0, 120.0]


def test_an_absurd_attempt_does_not_overflow():
    assert delay_after_error(10**6, 60.0, 300.0, 0.5) == 300.0


def test_an_attempt_before_the_first_waits_like_the_first():
    assert delay_after_error(0, 60.0, 300.0, 0.5) == 60.0


@given(st.integers(0, 100), st.floats(0, 1))
def test_a_delay_is_never_negative_and_never_more_than_the_most_and_its_jitter(attempt, spread):
    assert 0 < delay_after_error(attempt, 60.0, 300.0, spread) < 361.0


def test_a_tag_starts_where_the_owner_or_the_queue_has_got_to():
    assert start(None, None) == 0.0
    assert start(5.0, 3.0) == start(3.0, 5.0) == 5.0
    assert start(None, 4.0) == start(4.0, None) == 4.0


def test_a_tag_is_the_start_and_the_cost_over_the_weight():
    assert next_tag(1.0, 3.0, 1.0) == 4.0
    assert next_tag(1.0, 3.0, 2.0) == 2.5


@given(st.lists(st.floats(0.001, 1e6), max_size=20), st.floats(0.01, 100), st.floats(0, 1e9))
def test_tags_only_grow(costs, weight, begin):
    found = list(itertools.accumulate(costs, lambda at, c: next_tag(at, c, weight), initial=begin))
    assert all(a <= b for a, b in itertools.pairwise(found))
