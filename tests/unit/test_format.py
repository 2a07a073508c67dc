"""How states, errors and rates read for people."""

import pytest

from quire import format

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("a.pdf: is protected by a password. Remove it.",
         "The file is protected by a password. Remove it."),
        ("a.pdf: has no pages.", "The file has no pages."),
        ("a.pdf: larger than the limit.", "Larger than the limit."),
        ("a.pdf: its source yielded text.", "Its source yielded text."),
        ("blob 3f…: missing.", "blob 3f…: missing."),
        (None, ""),
    ],
)  # fmt: skip
def test_the_error_of_a_file_begins_with_its_subject(error: str | None, shown: str):
    assert format.file_error(error, "a.pdf") == shown


def test_a_completed_job_with_failed_files_is_amber():
    whole = {"state": "completed", "failed_files": 0}
    partly = {"state": "completed", "failed_files": 1}
    assert format.tone(format.job_state(whole)) == "good"
    assert format.job_state(partly) == "completed with errors"
    assert format.tone(format.job_state(partly)) == "warn"


def test_a_stop_reads_as_who_when_and_why():
    job = {
        "state": "stopped",
        "stopped_by": "ada",
        "stopped_at": NOW - 130,
        "stopped_why": "Lunch.",
    }
    assert format.stopped(job, NOW) == "stopped by ada 2 min ago: Lunch"
    job |= {"stopped_by": None, "stopped_at": NOW, "stopped_why": None}
    assert format.stopped(job, NOW) == "stopped just now"


def test_the_next_attempt_is_counted_down():
    told = [format.next_attempt({"next_attempt_at": NOW + left}, NOW) for left in (90, 38.7, 0.5)]
    assert told == ["next attempt in 1 min", "next attempt in 38 s", "next attempt now"]
    assert format.next_attempt({"next_attempt_at": None}, NOW) == ""


@pytest.mark.parametrize(
    ("name", "found", "expected"),
    [
        ("report.pdf", "text/html", "is named .pdf, but is html"),
        ("REPORT.PDF", "text/plain", "is named .pdf, but is text"),
        ("report.pdf", "application/pdf", None),
        ("scan.jpg", "image/jpeg", None),
        ("scan.jpg", "image/png", "is named .jpg, but is png"),
        ("notes.txt", "text/html", None),
        ("pdf", "text/html", None),
        ("new.pdf", None, None),
        ("locked.docx", "application/x-ole-encrypted", None),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_noticed(
    name: str, found: str | None, expected: str | None
):
    assert format.misnamed(name, found) == expected
