"""`quire transfer`: a home with real processes is moved, and goes on in PostgreSQL."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from quire import testing
from quire.control import doctor
from quire.store import open_database
from quire.store.db import sqlite
from quire.store.queue import settle
from quire.store.transfer import copy as transfer_copy
from quire.text.words import tsvector_input
from tests.integration.processes import Site
from tests.shelf import FUSED, Shelf, fill
from tests.waiting import until

pytest_plugins = ["tests.integration.cli.cli_command"]


def test_the_jobs_of_a_killed_worker_complete_on_postgresql(quire, embedded: Site, pg_url: str):
    waiting = embedded.submit("i.gated", tag="a")
    embedded.submit_many("noop", [{}] * 50)
    worker = embedded.worker(concurrency=1)
    until(lambda: embedded.job(waiting).state == "running")
    embedded.app.close()
    refused = quire("transfer", pg_url)
    assert refused.code == 2
    assert f"pid {worker.pid}" in refused.err
    assert "quire worker drain" in refused.err
    worker.kill()
    until(lambda: not embedded.own_processes())
    moved = quire("transfer", pg_url, "--json")
    assert moved.code == 0, moved.err
    assert moved.json["rows"]["jobs"] == 51
    assert moved.json["not_copied"] == ["effects"]
    assert moved.json["doctor"]["healthy"]

    after = Site(embedded.home, pg_url).prepare()
    after.open_gate()
    after.worker()
    assert after.until_over([row.id for row in after.rows("jobs")]) == {"completed": 51}
    assert after.effects() == ["a"]
    after.assert_healthy()
    after.close()


def test_an_idle_process_of_the_home_is_enough_to_refuse(
    quire, embedded: Site, pg_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite, "EXCLUSIVE_WAIT_SECONDS", 0.1)
    embedded.app.close()
    scheduler = embedded.start("scheduler")
    until(lambda: scheduler.logs("scheduler.started"))
    refused = quire("transfer", pg_url)
    assert refused.code == 2
    assert "open in another Quire process" in refused.err
    scheduler.leave()
    assert quire("transfer", pg_url).code == 0


def test_a_killed_move_goes_on_where_it_was(quire, embedded: Site, pg_url: str):
    embedded.submit_many("noop", [{}] * 30_000)
    embedded.app.close()
    running = embedded.start("transfer", pg_url)

    def copied() -> int:
        with psycopg.connect(pg_url) as conn:
            [count] = conn.execute("SELECT count(*) FROM jobs").fetchone() or (0,)
        return int(count)

    until(lambda: copied() > 0 or running.popen.poll() is not None, what=lambda: running.log)
    running.kill()
    assert running.popen.returncode == -signal.SIGKILL, running.log
    assert copied() > 0
    ended = quire("transfer", pg_url)
    assert ended.code == 0, ended.err
    assert "tasks: 30,000 of 30,000" in ended.err
    assert "Continued an interrupted transfer." in ended.out
    assert "Counts and checksums match." in ended.out
    assert "All " in ended.out and "invariants hold" in ended.out
    assert str(embedded.home) in ended.out
    assert copied() == 30_000


def test_the_old_home_refuses_every_command(quire, pg_url: str):
    secret = pg_url.replace("postgres@", "postgres:hidden@")
    quire("submit", "noop")
    assert quire("transfer", secret).code == 0
    for arguments in (("up",), ("worker",), ("status",), ("submit", "noop"), ("migrate",)):
        ended = quire(*arguments)
        assert ended.code == 78
        assert "transferred to postgresql://postgres:***@" in ended.err
        assert "hidden" not in ended.err


@pytest.mark.parametrize(
    ("to", "environ", "said"),
    [
        ("sqlite:///other.db", {}, "not a postgresql:// URL"),
        (
            "postgresql://x/y",
            {"QUIRE_DATABASE_URL": "postgresql://x/z"},
            "database in use is PostgreSQL",
        ),
        ("postgresql://x/y", {"QUIRE_URL": "http://127.0.0.1:1"}, "needs the database"),
        ("postgresql://x/y", {}, "no database to transfer"),
        ("postgresql://me:hidden@/x?host=/nonexistent", {"made": "1"}, "me:***@"),
    ],
)
def test_what_cannot_be_moved_is_refused(
    quire, monkeypatch: pytest.MonkeyPatch, to: str, environ: dict[str, str], said: str
):
    if "made" in environ:
        quire("submit", "noop")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    ended = quire("transfer", to)
    assert ended.code in (1, 2)
    assert said in ended.err
    assert "hidden" not in ended.err
    assert "Traceback" not in ended.err


def test_a_terminal_shows_a_bar_for_each_table(quire, pg_url: str, monkeypatch: pytest.MonkeyPatch):
    quire("submit", "noop", "--count", "3")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    ended = quire("transfer", pg_url)
    assert ended.code == 0
    assert "3/3" in ended.err
    assert "compare tables" in ended.err


def test_documents_that_were_being_read_become_searchable_on_postgresql(
    tmp_path: Path, pg_url: str
):
    whole = Shelf(tmp_path / "whole", tmp_path / "in")
    fill(whole.folder, 22)
    whole.ingest(settings=FUSED)
    expected = whole.index()
    whole.close()

    before = Shelf(tmp_path / "home", tmp_path / "in")
    before.submit(settings=FUSED)
    before.step(15)
    assert testing._claim(before.app, "default")
    before.close()
    target = open_database(pg_url, clock=before.clock)
    transfer_copy.transfer(
        tmp_path / "home" / "quire.db",
        target,
        name="there",
        analyse=tsvector_input,
        report=_nothing,
    )
    assert [each.name for each in doctor.examine(target).violations] in ([], ["documents.words"])
    doctor.repair_derived(target, {})
    assert doctor.examine(target).violations == []
    target.close()

    after = Shelf(tmp_path / "home", tmp_path / "in", pg_url)
    after.clock.advance(100_000)
    assert after.db.write(lambda conn, now: settle.reap(conn, now=now, dead=()))
    after.drain()
    assert after.index() == expected
    after.assert_healthy()
    after.close()


def _nothing(*step: Any) -> None:
    """Take what is told, and say nothing."""
