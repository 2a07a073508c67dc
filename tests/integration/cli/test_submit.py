"""`quire submit`: what it makes, what it prints, what it refuses."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path

import pytest

pytest_plugins = ["tests.integration.cli.cli_command"]


def jobs(quire):
    return quire("jobs", "--json").json["items"]


def test_a_submitted_job_is_stored_as_it_was_asked_for(quire_on_each):
    quire = quire_on_each
    ended = quire(
        *("submit", "noop", "--payload", '{"seconds": 1}', "--arg", "note=hi", "--arg", "n=[1,2]"),
        *("--priority", 2, "--platform", "web", "--account", "a7", "--json"),
    )
    assert (ended.code, ended.json) == (0, {"id": 1})
    [job] = jobs(quire)
    assert job["kind"] == "noop"
    assert job["payload"] == {"seconds": 1, "note": "hi", "n": [1, 2]}
    assert (job["priority"], job["platform"], job["account"]) == (2, "web", "a7")
    assert job["owner"] == {"tenant": "default", "user": "ada"}
    assert job["state"] == "pending"


def test_people_are_told_the_id_and_how_to_follow_it(quire):
    ended = quire("submit", "noop")
    assert ended.out == "job 1 submitted.\nFollow it with: quire job show 1 --watch\n"


def test_many_jobs_have_their_index_in_the_payload(quire):
    assert quire("submit", "noop", "--count", 3, "--index-as", "i", "--json").json == {
        "ids": [1, 2, 3]
    }
    assert [job["payload"] for job in jobs(quire)] == [{"i": 2}, {"i": 1}, {"i": 0}]


def test_a_count_above_one_batch_makes_every_job_once_for_one_key(quire, monkeypatch):
    monkeypatch.setattr("quire.cli.submit.BATCH", 2)
    first = quire("submit", "noop", "--count", 5, "--key", "k", "--json").json
    second = quire("submit", "noop", "--count", 5, "--key", "k", "--json").json
    assert first == second
    assert len(jobs(quire)) == 5


def test_the_same_key_makes_a_job_once_and_says_so(quire_on_each):
    quire = quire_on_each
    quire("submit", "noop", "--key", "once")
    again = quire("submit", "noop", "--key", "once")
    assert again.code == 0
    assert "No new jobs were submitted." in again.out
    assert len(jobs(quire)) == 1


def test_a_key_that_was_used_for_something_else_is_refused(quire):
    quire("submit", "noop", "--key", "once")
    ended = quire("submit", "noop", "--key", "once", "--priority", 1)
    assert ended.code == 2
    assert "used for another request" in ended.err


def test_a_payload_is_read_from_a_file_or_from_standard_input(quire, home: Path):
    (home / "payload.json").write_text('{"from": "file"}')
    quire("submit", "noop", "--payload", "@payload.json")
    quire("submit", "noop", "--payload", "-", stdin='{"from": "stdin"}')
    assert [job["payload"]["from"] for job in jobs(quire)] == ["stdin", "file"]


@pytest.mark.parametrize(
    ("given", "seconds"), [("+90s", 90), ("+10m", 600), ("+2h", 7200), ("+1d", 86_400)]
)
def test_a_relative_time_counts_from_now(quire, given, seconds):
    before = time.time()
    quire("submit", "noop", "--run-at", given)
    [job] = jobs(quire)
    at = datetime.fromisoformat(job["run_at"]).timestamp()
    assert before + seconds - 0.01 <= at <= time.time() + seconds + 0.01


def test_an_absolute_time_is_taken_in_its_zone(quire):
    quire("submit", "noop", "--run-at", "2099-01-31T18:00:00+02:00")
    assert jobs(quire)[0]["run_at"] == "2099-01-31T16:00:00.000Z"


def test_a_job_waits_for_those_it_comes_after(quire):
    quire("submit", "noop", "--count", 2)
    quire("submit", "noop", "--after", 1, "--after", 2)
    [task] = quire("job", "show", 3, "--json").json["task_list"]["items"]
    assert (task["state"], task["reason"], task["waits"]) == ("blocked", "after", 2)


def test_a_file_makes_one_job_of_each_line_and_lines_may_name_each_other(quire_on_each, home):
    lines = [
        {"kind": "noop", "ref": "first", "payload": {"n": 1}},
        {"kind": "wait", "after": ["first"], "priority": 3, "run_at": "+1h"},
    ]
    (home / "jobs.jsonl").write_text("\n\n".join(map(json.dumps, lines)))
    ended = quire_on_each("submit", "--file", "jobs.jsonl", "--json")
    assert ended.json == {"ids": [1, 2]}
    last, first = jobs(quire_on_each)
    assert first["payload"] == {"n": 1}
    assert (last["kind"], last["priority"]) == ("wait", 3)
    assert last["run_at"] is not None


def test_a_kind_named_beside_a_file_is_that_of_lines_without_one(quire):
    quire("submit", "noop", "--file", "-", stdin='{}\n{"kind": "wait"}\n')
    assert [job["kind"] for job in jobs(quire)] == ["wait", "noop"]


BAD_LINES = {
    "{": "line 1: not JSON",
    "[]": "line 1: expected a JSON object, got a list",
    "{}": "line 1: no job kind",
    '{"kind": 5}': "line 1: no job kind",
    '{"kind": "noop", "priority": "high"}': "line 1: priority: 'high' is not a whole number",
    '{"kind": "noop", "priority": true}': "line 1: priority: True is not a whole number",
    '{"kind": "noop", "after": [1.5]}': "line 1: after: 1.5 is not a job id",
    '{"kind": "noop", "after": "1"}': "line 1: after: '1' is not a list of job ids and refs",
    '{"kind": "noop", "after_failure": 1}': "line 1: after_failure: 1 is not 'cancel' or 'run'",
    '{"kind": "noop", "payload": [1]}': "line 1: payload: expected a JSON object",
    '{"kind": "noop", "colour": "red"}': "line 1: unknown field 'colour'",
    '{"kind": "noop", "max_retries": 2}': "max_retries was replaced by max_attempts",
    '{"kind": "noop", "after": ["nobody"]}': "no job of this request has that ref",
    '{"kind": "noop"}\n{"kind": "nope"}': "job kind 'nope'",
    "": "the file is empty",
}


@pytest.mark.parametrize("text", BAD_LINES)
def test_one_bad_line_and_nothing_of_the_file_is_stored(quire, text):
    quire("migrate")
    ended = quire("submit", "--file", "-", stdin=text)
    assert ended.code == 2
    assert BAD_LINES[text] in ended.err
    assert jobs(quire) == []


BAD_COMMANDS = {
    ("nope",): "ingest.swap, noop, wait. Nothing was submitted",
    ("noop", "--payload", "{bad"): "payload: not JSON",
    ("noop", "--payload", "[1]"): "payload: expected a JSON object, got a list",
    ("noop", "--payload", "NaN"): "payload: not JSON",
    ("noop", "--payload", "@absent.json"): "No such file",
    ("noop", "--arg", "novalue"): "expected key=value",
    ("noop", "--run-at", "tomorrow"): "expected ISO 8601",
    ("noop", "--run-at", "+10y"): "expected ISO 8601",
    ("noop", "--run-at", "+999999999d"): "not a time between 1970 and 9999",
    ("noop", "--run-at", "1901-01-01T00:00:00Z"): "not a time between 1970 and 9999",
    ("noop", "--priority", 11): "from 1 (highest) to 10 (lowest)",
    ("noop", "--after", 99): "job 99: no such job to wait for",
    ("noop", "--after", "abc"): "job abc: not a job id",
    ("noop", "--after-failure", "explode"): "not 'cancel' or 'run'",
    ("noop", "--count", 0): "--count: 0 is not between",
    ("noop", "--key", ""): "idempotency key",
    ("noop", "--platform", ""): "platform: expected 1 to",
    ("noop", "--plugin", "absent.py"): "no such file",
    (): "no job kind",
    ("noop", "--file", "x", "--arg", "a=1"): "Only KIND, --key, --user",
}


@pytest.mark.parametrize("arguments", BAD_COMMANDS, ids=lambda given: " ".join(map(str, given)))
def test_what_cannot_be_submitted_is_refused_in_one_line(quire, arguments):
    ended = quire("submit", *arguments)
    assert ended.code == 2
    assert BAD_COMMANDS[arguments] in ended.err
    assert len(ended.err.splitlines()) == 1
    assert ended.out == ""
    quire("migrate")
    assert jobs(quire) == []


def test_a_plugin_named_on_the_command_line_adds_its_kinds(quire, home: Path):
    (home / "mine.py").write_text(
        "from quire import job\n\n\n@job('mine')\ndef mine(ctx):\n    pass\n"
    )
    assert quire("submit", "mine", "--plugin", "mine.py", "--json").json == {"id": 1}
