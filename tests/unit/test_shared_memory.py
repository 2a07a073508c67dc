"""The shared memory of a worker and a child, seen from both sides."""

import json
import os
from collections.abc import Iterator

import pytest

from quire.runtime.child.shared_memory import BATCH_LIMIT, OUTBOX, Slate, Turnstile, make_memory


@pytest.fixture
def sides() -> Iterator[tuple[Slate, Slate]]:
    fd = make_memory()
    parent, child = Slate(fd), Slate(fd)
    os.close(fd)
    yield parent, child
    parent.close()
    child.close()


@pytest.fixture
def turns() -> Iterator[tuple[Turnstile, Turnstile, int]]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    yield Turnstile(read), Turnstile(read), write
    os.close(read)
    os.close(write)


def test_the_parent_sees_which_task_runs_and_since_when(sides):
    parent, child = sides
    assert parent.running() is None
    child.begin(BATCH_LIMIT - 1, 123_456_789)
    assert parent.running() == (BATCH_LIMIT - 1, 123.456789)
    assert parent.moved_at() == 123.456789
    child.rest()
    assert parent.running() is None


def test_a_start_ten_years_after_boot_still_fits_its_word(sides):
    parent, child = sides
    ten_years = 10 * 366 * 86_400
    child.begin(0, ten_years * 1_000_000)
    assert parent.running() == (0, float(ten_years))


def test_progress_moves_the_time_that_the_parent_reads(sides):
    parent, child = sides
    child.begin(0, 1_000_000)
    child.move(2_500_000)
    assert parent.moved_at() == 2.5
    assert parent.running() == (0, 1.0)


def test_a_revoked_task_is_seen_by_the_child_and_no_other_task_is(sides):
    parent, child = sides
    parent.revoke(7)
    assert [index for index in range(BATCH_LIMIT) if child.is_revoked(index)] == [7]


def test_rows_wait_in_the_outbox_until_they_are_forgotten(sides):
    parent, child = sides
    assert parent.kept() == b"" and not child.kept_any()
    assert child.keep(b"[1]") and child.keep(b"[2]")
    assert child.kept_any()
    assert json.loads(b"[" + parent.kept() + b"]") == [[1], [2]]
    child.forget()
    assert parent.kept() == b""


def test_a_row_that_does_not_fit_is_refused_and_leaves_the_others_whole(sides):
    parent, child = sides
    assert child.keep(b"[1]")
    assert not child.keep(b"x" * OUTBOX)
    assert parent.kept() == b"[1]"


def test_clearing_forgets_the_batch_before(sides):
    parent, child = sides
    child.begin(3, 5)
    child.keep(b"[1]")
    parent.revoke(3)
    parent.clear()
    assert parent.running() is None
    assert parent.kept() == b""
    assert not child.is_revoked(3)


def test_each_turn_is_taken_by_one_side_only(turns):
    parent, child, write = turns
    os.write(write, bytes(BATCH_LIMIT))
    assert child.take() and child.take()
    assert parent.take_rest() == BATCH_LIMIT - 2
    assert not child.take()
    assert parent.take_rest() == 0


def test_nothing_is_left_to_take_when_the_pipe_is_closed(turns):
    parent, child, write = turns
    os.dup2(os.open(os.devnull, os.O_RDONLY), write)
    assert not child.take()
    assert parent.take_rest() == 0
