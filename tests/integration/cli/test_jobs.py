"""`quire jobs`, `job`, `logs`, `status`, `owner`, `pause`: reading and changing what is stored."""

from __future__ import annotations

import os
import pty
import re

import pytest

pytest_plugins = ["tests.integration.cli.cli_command"]

JOB = {
    "id", "kind", "platform", "account", "owner", "state", "priority", "payload", "progress",
    "progress_message", "eta_at", "retry_count", "max_attempts", "worker_id", "error", "result",
    "created_at", "started_at", "finished_at", "files",
}  # fmt: skip
TASK = {
    "id", "kind", "state", "from_page", "to_page", "digest", "progress", "begin_at",
    "process_duration", "attempt", "error",
}  # fmt: skip


def test_jobs_are_listed_in_pages_latest_first(quire_on_each):
    quire = quire_on_each
    quire("submit", "noop", "--count", 5)
    first = quire("jobs", "--limit", 3, "--json").json
    assert [job["id"] for job in first["items"]] == [5, 4, 3]
    rest = quire("jobs", "--limit", 3, "--cursor", first["next"], "--json").json
    assert [job["id"] for job in rest["items"]] == [2, 1]
    assert rest["next"] is None
    assert set(first["items"][0]) >= JOB


def test_filters_narrow_the_list(quire):
    quire("submit", "noop", "--platform", "web", "--account", "x")
    quire("submit", "wait", "--user", "bob")
    quire("submit", "noop")
    quire("job", "cancel", 3)

    def ids(*filters):
        return [job["id"] for job in quire("jobs", *filters, "--json").json["items"]]

    assert ids("--kind", "wait") == [2]
    assert ids("--platform", "web", "--account", "x") == [1]
    assert ids("--user", "bob") == [2]
    assert ids("--state", "cancelled") == [3]
    assert ids("--state", "cancelled", "--state", "pending") == [3, 2, 1]


def test_the_table_has_a_line_for_each_job_with_what_matters(quire):
    quire("submit", "noop")
    quire("submit", "wait", "--run-at", "+2h")
    quire("job", "stop", 1, "--why", "later [b]\x1b[31m")
    head, second, first = quire("jobs").out.splitlines()
    assert head.split() == ["ID", "KIND", "STATE", "PROGRESS", "OWNER", "PRIORITY", "AGE", "DETAIL"]
    assert second.split()[:3] == ["2", "wait", "pending"]
    assert re.search("starts in (2 h|1 h 59 min)", second)  # the commands take a while
    assert first.split()[:3] == ["1", "noop", "stopped"]
    assert "later [b]" in first
    assert "\x1b" not in first


def test_an_empty_list_says_how_to_begin(quire):
    quire("migrate")
    assert "No jobs yet. Try: quire submit" in quire("jobs").out
    assert quire("jobs", "--kind", "noop").out == "No job matches.\n"


def test_a_job_is_stopped_resumed_cancelled_retried_and_deleted(quire_on_each):
    quire = quire_on_each
    quire("submit", "noop")

    def state():
        return quire("job", "show", 1, "--json").json["state"]

    assert quire("job", "stop", 1).code == 0
    assert state() == "stopped"
    assert quire("job", "resume", 1).code == 0
    assert state() == "pending"
    assert quire("job", "cancel", 1).code == 0
    assert state() == "cancelled"
    assert quire("job", "retry", 1).code == 0
    assert state() == "pending"
    assert quire("job", "priority", 1, 9).out == "job 1 now has priority 9.\n"
    quire("job", "cancel", 1)
    assert quire("job", "delete", 1).out == "job 1 deleted.\n"
    assert quire("job", "show", 1).code == 2


def test_what_the_state_does_not_allow_is_refused_with_what_is_possible(quire):
    quire("submit", "noop")
    assert quire("job", "delete", 1).err == (
        "job 1: it is pending, and only a job that has ended can be deleted. "
        "Stop it first: quire job stop 1\n"
    )
    resumed = quire("job", "resume", 1)
    assert resumed.code == 2
    assert "Possible now: stop, cancel." in resumed.err
    quire("job", "cancel", 1)
    assert "its priority has no effect" in quire("job", "priority", 1, 3).err


VERBS = [
    *(("job", verb) for verb in ("show", "stop", "resume", "cancel", "retry", "delete", "explain")),
    ("logs",),
]


@pytest.mark.parametrize("command", VERBS, ids=" ".join)
@pytest.mark.parametrize("job_id", ["99", "0", "9223372036854775808", "9" * 5000])
def test_a_job_that_does_not_exist_is_named_in_one_line(quire, command, job_id):
    quire("migrate")
    ended = quire(*command, job_id)
    assert ended.code == 2
    assert f"job {job_id[:40]}: no such job." in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("text", ["abc", "1.5", "١", "-- -1"])
def test_what_is_no_id_is_refused(quire, text):
    quire("migrate")
    ended = quire("job", "show", *text.split(" "))
    assert ended.code == 2
    assert "not a job id" in ended.err


def test_jobs_of_another_tenant_do_not_exist(quire, monkeypatch):
    quire("submit", "noop")
    monkeypatch.setenv("QUIRE_TENANT", "other")
    assert quire("job", "show", 1).err.startswith("job 1: no such job.")
    assert quire("job", "stop", 1).code == 2
    assert quire("logs", 1).code == 2
    assert quire("jobs", "--json").json == {"items": [], "next": None}
    assert quire("jobs", "cancel", "--yes").out == "No matching job can be cancelled.\n"


def test_verbs_act_on_all_jobs_that_match(quire_on_each):
    quire = quire_on_each
    quire("submit", "noop", "--count", 3)
    quire("submit", "wait")
    assert quire("jobs", "stop", "--kind", "noop", "--yes").out == "3 jobs stopped.\n"
    assert quire("jobs", "resume", "--kind", "noop", "--yes").out == "3 jobs resumed.\n"
    assert quire("jobs", "cancel", "--yes").out == "4 jobs cancelled.\n"
    assert quire("jobs", "retry", "--kind", "wait", "--yes").out == "1 job retried.\n"
    assert quire("jobs", "delete", "--yes").out == "3 jobs deleted.\n"
    assert [job["id"] for job in quire("jobs", "--json").json["items"]] == [4]


def test_without_a_terminal_verbs_on_many_jobs_want_to_be_told_yes(quire):
    quire("submit", "noop", "--count", 2)
    ended = quire("jobs", "cancel")
    assert ended.code == 2
    assert "2 jobs would be cancelled" in ended.err
    assert quire("status", "--json").json["jobs"]["pending"] == 2


def test_on_a_terminal_verbs_on_many_jobs_ask(quire, home):
    quire("submit", "noop", "--count", 2)
    assert "2 jobs will be cancelled. Continue? [y/N]" in on_terminal(["jobs", "cancel"], "n\n")
    assert quire("status", "--json").json["jobs"]["pending"] == 2
    assert "2 jobs cancelled." in on_terminal(["jobs", "cancel"], "y\n")
    assert quire("status", "--json").json["jobs"]["cancelled"] == 2


def test_filters_before_the_verb_are_refused_not_ignored(quire):
    quire("submit", "noop")
    ended = quire("jobs", "--kind", "wait", "cancel", "--yes")
    assert ended.code == 2
    assert "options go after cancel" in ended.err
    assert quire("status", "--json").json["jobs"]["pending"] == 1


@pytest.mark.parametrize(
    "arguments",
    [("--state", "bogus"), ("--limit", 0), ("--limit", 1001), ("--cursor", "x"), ("--bogus",)],
)
def test_bad_filters_are_refused(quire, arguments):
    quire("migrate")
    assert quire("jobs", *arguments).code == 2


def test_a_job_is_shown_with_its_tasks_and_runs(quire_on_each):
    quire_on_each("submit", "noop", "--arg", "x=1")
    one = quire_on_each("job", "show", 1, "--json").json
    assert set(one) >= JOB
    [task] = one["task_list"]["items"]
    assert set(task) >= TASK
    assert one["attempts"] == []
    text = quire_on_each("job", "show", 1).out
    assert text.startswith("job 1  noop  pending\n")
    assert "quire job stop 1" in text


def test_logs_tell_what_happened_in_order(quire_on_each):
    quire = quire_on_each
    quire("submit", "noop")
    assert quire("logs", 1).out.startswith("No events yet: job 1 is pending")
    quire("job", "stop", 1, "--why", "lunch")
    quire("job", "resume", 1)
    quire("job", "priority", 1, 2)
    items = quire("logs", 1, "--json").json["items"]
    assert [event["name"] for event in items] == ["job.stopped", "job.resume", "job.priority"]
    assert all(event["at"].endswith("Z") for event in items)
    lines = [line[21:] for line in quire("logs", 1).out.splitlines()]
    assert lines == ["stopped: lunch; by ada", "resumed", "priority 2"]
    assert len(quire("logs", 1, "--limit", 1).out.splitlines()) == 1
    assert quire("logs", 1, "--limit", 0).code == 2


def test_following_the_log_of_a_job_that_is_over_ends_at_once(quire):
    quire("submit", "noop")
    quire("job", "cancel", 1)
    assert quire("logs", 1, "-f").out.endswith("cancelled: by ada\n")
    assert quire("logs", 1, "-f", "--json").json["name"] == "job.cancelled"


def test_status_counts_and_names_the_home(quire_on_each, home):
    quire_on_each("submit", "noop", "--count", 2)
    status = quire_on_each("status", "--json").json
    assert status["home"] == str(home)
    assert status["jobs"]["pending"] == 2
    assert status["tasks"]["ready"] == 2
    assert status["workers"] == []
    text = quire_on_each("status").out
    assert str(home) in text
    assert "2 pending" in text
    assert "quire up" in text


def test_explain_says_what_a_job_waits_for(quire_on_each):
    quire_on_each("submit", "noop", "--run-at", "+2h")
    answer = quire_on_each("job", "explain", 1, "--json").json
    assert (answer["id"], answer["state"]) == (1, "pending")
    text = quire_on_each("job", "explain", 1).out
    assert text.startswith("job 1: pending.\n")
    assert answer["next"] in text


def test_a_kind_is_paused_and_let_go(quire_on_each):
    quire = quire_on_each
    assert quire("pause", "noop").code == 0
    assert quire("pause", "noop").out == "noop is already paused.\n"
    assert quire("status", "--json").json["paused"] == ["noop"]
    quire("submit", "noop")
    assert quire("unpause", "noop").out == "noop is active again.\n"
    assert quire("unpause", "noop").out == "noop is not paused.\n"
    assert quire("status", "--json").json["tasks"]["ready"] == 1
    assert quire("pause", "nope").code == 2


def test_an_owner_is_set_and_listed(quire_on_each):
    quire = quire_on_each
    assert quire("owner", "list", "--json").code in (0, 1)
    ended = quire(
        *("owner", "set", "bob", "--policy", "queue", "--weight", 2, "--max-running", 3, "--json")
    )
    owner = ended.json
    assert (owner["user"], owner["policy"], owner["weight"]) == ("bob", "queue", 2.0)
    assert owner["max_running"] == 3
    cleared = quire("owner", "set", "bob", "--policy", "default", "--max-running", 0, "--json").json
    assert (cleared["policy"], cleared["max_running"], cleared["weight"]) == (None, None, 2.0)
    [listed] = quire("owner", "list", "--json").json["items"]
    assert listed == cleared
    assert "all (default)" in quire("owner", "list").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--policy", "bogus"),
        ("--weight", 0),
        ("--weight", "nan"),
        ("--weight", "1e30"),
        ("--max-running", -1),
        ("--max-running", 10**12),
    ],
)
def test_a_share_out_of_range_is_refused(quire, arguments):
    ended = quire("owner", "set", "bob", *arguments)
    assert ended.code == 2
    assert ended.out == ""


def test_removing_a_cap_lets_go_what_it_held_back(quire_on_each, monkeypatch):
    from quire.app import App
    from quire.store.queue import claim

    quire = quire_on_each
    quire("owner", "set", "ada", "--max-running", 1)
    quire("submit", "noop", "--count", 3)
    app = App()
    with app.db.begin() as conn:
        now = app.db.now(conn)
        claim.claim(conn, "w", "default", {"noop"}, now=now, ttl=60, limit=3)
    assert quire("status", "--json").json["tasks"]["blocked"] == 2
    quire("owner", "set", "ada", "--max-running", 0)
    assert quire("status", "--json").json["tasks"]["ready"] == 2
    app.close()


def on_terminal(arguments, typed):
    """Run the command on a pseudo-terminal, type something, and return what it showed."""
    import sys

    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "quire", *arguments])  # noqa: S606
    os.write(terminal, typed.encode())
    shown = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # Linux: the other side has closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(terminal)
    os.waitpid(pid, 0)
    return shown.decode()
