"""The shared memory of a worker and a child, seen from both sides."""

import json
import os
from collections.abc import Iterator

import pytest

from quire.runtime.child.channel import (
    MAX_BATCH,
    OUTBOX_BYTES,
    SharedMemory,
    StartTokens,
    create_memory,
)


@pytest.fixture
def sides() -> Iterator[tuple[SharedMemory, SharedMemory]]:
    fd = create_memory()
    parent, child = SharedMemory(fd), SharedMemory(fd)
    os.close(fd)
    yield parent, child
    parent.close()
    child.close()


@pytest.fixture
def tokens() -> Iterator[tuple[StartTokens, StartTokens, int]]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    yield StartTokens(read), StartTokens(read), write
    os.close(read)
    os.close(write)


def test_the_parent_sees_which_task_runs_and_since_when(sides):
    parent, child = sides
    assert parent.running() is None
    child.start(MAX_BATCH - 1, 123_456_789)
    assert parent.running() == (MAX_BATCH - 1, 123.456789)
    assert parent.progress_at() == 123.456789
    child.finish()
    assert parent.running() is None


def test_a_start_ten_years_after_boot_still_fits_its_word(sides):
    parent, child = sides
    ten_years = 10 * 366 * 86_400
    child.start(0, ten_years * 1_000_000)
    assert parent.running() == (0, float(ten_years))


def test_progress_moves_the_time_that_the_parent_reads(sides):
    parent, child = sides
    child.start(0, 1_000_000)
    child.touch(2_500_000)
    assert parent.progress_at() == 2.5
    assert parent.running() == (0, 1.0)


def test_a_revoked_task_is_seen_by_the_child_and_no_other_task_is(sides):
    parent, child = sides
    parent.revoke(7)
    assert [index for index in range(MAX_BATCH) if child.is_revoked(index)] == [7]


def test_reports_wait_in_the_outbox_until_they_are_cleared(sides):
    parent, child = sides
    assert parent.reports() == b"" and not child.has_reports()
    assert child.append(b"[1]") and child.append(b"[2]")
    assert child.has_reports()
    assert json.loads(b"[" + parent.reports() + b"]") == [[1], [2]]
    child.clear_reports()
    assert parent.reports() == b""


def test_a_report_that_does_not_fit_is_refused_and_leaves_the_others_whole(sides):
    parent, child = sides
    assert child.append(b"[1]")
    assert not child.append(b"x" * OUTBOX_BYTES)
    assert parent.reports() == b"[1]"


def test_clearing_forgets_the_batch_before(sides):
    parent, child = sides
    child.start(3, 5)
    child.append(b"[1]")
    parent.revoke(3)
    parent.clear()
    assert parent.running() is None
    assert parent.reports() == b""
    assert not child.is_revoked(3)


def test_each_token_is_taken_by_one_side_only(tokens):
    parent, child, write = tokens
    os.write(write, bytes(MAX_BATCH))
    assert child.take() and child.take()
    assert parent.take_all() == MAX_BATCH - 2
    assert not child.take()
    assert parent.take_all() == 0


def test_nothing_is_left_to_take_when_the_pipe_is_closed(tokens):
    parent, child, write = tokens
    os.dup2(os.open(os.devnull, os.O_RDONLY), write)
    assert not child.take()
    assert parent.take_all() == 0
