"""What a person who waits for an ingest reads: pages a second, and how long it still takes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from quire.cli.ingest.files_view import RATE_SECONDS, Picture, Rate, summary_line
from quire.clock import iso


def seen(**of_job: Any) -> Picture:
    job = {
        "state": "running", "files": {"success": 2, "pending": 2}, "files_with_errors": 0,
        "is_listing": False, "eta_at": iso(time.time() + 90.5), "progress_message": None,
        "result": None,
    }  # fmt: skip
    return Picture({**job, **of_job}, [], 0)


def test_a_rate_needs_something_to_compare_with():
    rate = Rate()
    assert rate.tell(0, 0.0) is None
    assert rate.tell(5, 0.5) is None  # too soon to say
    assert rate.tell(30, 3.0) == 10.0


def test_a_rate_is_that_of_the_last_seconds():
    rate = Rate()
    for second in range(60):
        told = rate.tell(100 * min(second, 30) + max(second - 30, 0), float(second))
    assert told == pytest.approx(1.0, rel=0.1)
    assert RATE_SECONDS < 29


def test_there_is_no_rate_when_no_page_was_committed_lately():
    rate = Rate()
    for second in range(20):
        told = rate.tell(7, float(second))
    assert told is None
    assert rate.tell(8, 21.0) is not None


def test_looks_that_are_far_apart_still_give_a_rate():
    rate = Rate()
    assert rate.tell(0, 0.0) is None
    assert rate.tell(100, 50.0) == 2.0
    assert rate.tell(400, 100.0) == pytest.approx(6.0)


def test_the_line_counts_down_to_the_next_attempt():
    line = summary_line(seen(eta_at=None, next_attempt_at=iso(time.time() + 38.5)), None)
    assert line == "2 of 4 files done, next attempt in 38 s"


def test_the_line_tells_pages_a_second_and_the_time_left():
    assert summary_line(seen(), 3.21) == "2 of 4 files done, 3.2 pages/s, 1 min left"
    assert "1,235 pages/s" in summary_line(seen(), 1234.6)


@pytest.mark.parametrize("job", [{"eta_at": None}, {"is_listing": True}])
def test_the_line_has_no_time_left_where_none_is_known(job: dict[str, Any]):
    line = summary_line(seen(**job), None)
    assert "left" not in line
    assert "pages/s" not in line
