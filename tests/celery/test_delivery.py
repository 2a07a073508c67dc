"""Delivery by Celery over Redis as people run it: commands, queues, Flower, and documents."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from quire.celery import settings as celery_settings
from quire.errors import BadInput
from quire.settings import load
from tests.brokers import Valkey, free_port
from tests.celery.stand import DEAF, START, dispatching, settings_of, start_worker
from tests.integration.processes import ROOT, Running, Site
from tests.shelf import PLAIN, Shelf, fill, logical_index
from tests.waiting import until


def celery(site: Site, *words: str, **settings: Any) -> Running:
    """Start the `celery` command with our application."""
    log = site.home / f"celery-{words[0]}.txt"
    with log.open("wb") as out:
        popen = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "quire.celery", *words],
            env=site.environment(**settings),
            cwd=site.home,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    running = Running(popen, log)
    site._started.append(running)
    return running


def test_up_runs_jobs_for_doorbells_and_status_names_the_broker(site: Site, valkey: Valkey):
    # Nobody looks by itself here: what runs was rung for.
    up = site.start("up", "--no-api", poll_interval=DEAF)
    until(
        lambda: up.logs("worker.started") and up.logs("dispatcher.started"),
        within=START,
        what=site.logs,
    )
    ids = site.submit_many("i.effect", [{"tag": f"t{n:03}"} for n in range(30)])
    assert site.until_over(ids) == {"completed": 30}
    later = site.app.submit("i.effect", tag="later")
    assert site.until_over(later) == {"completed": 1}
    until(lambda: valkey.length() == 0)
    told = subprocess.run(
        [sys.executable, "-m", "quire", "status"],
        env=site.environment(),
        capture_output=True,
        text=True,
        timeout=START,
    )
    assert f"redis://127.0.0.1:{valkey.port}/0" in told.stdout, told.stdout + told.stderr
    assert up.leave() == 0, site.logs()
    site.assert_healthy()


def test_celery_s_own_command_and_flower_show_workers_kind_and_job(site: Site):
    port = free_port()
    worker = celery(site, "worker", "-n", "one@here", "-c", "1", poll_interval=DEAF)
    # It works without the database.
    flower = celery(
        site, "flower", f"--port={port}", "--address=127.0.0.1", "--basic-auth=x:x", database_url=""
    )
    until(lambda: worker.logs("worker.started"), within=START, what=lambda: worker.log)
    until(
        lambda: "one@here" in shown(port, "/workers?json=1"), within=START, what=lambda: flower.log
    )
    with dispatching(site):
        job = site.submit("i.effect", tag="shown")
        assert site.until_over(job) == {"completed": 1}
        until(lambda: "quire.ring" in shown(port, "/api/tasks"), what=lambda: flower.log)
        # One, or more where the worker took its time: each names the head of the order.
        for task in json.loads(shown(port, "/api/tasks")).values():
            assert "'kind': 'i.effect'" in task["kwargs"], task
            assert f"'job_id': {job}" in task["kwargs"], task
    assert site.rows("workers")[0].concurrency == 1
    assert flower.leave() in (0, -15)
    assert worker.leave() == 0, worker.log


@pytest.mark.parametrize("allowed", [False, True])
def test_a_command_from_the_broker_is_obeyed_only_if_remote_control_is_on(
    site: Site, allowed: bool
):
    worker = celery(site, "worker", "-n", "one@here", "-c", "1", celery_remote_control=allowed)
    until(lambda: worker.logs("worker.started"), within=START, what=lambda: worker.log)
    app: Any = celery_settings.make_app(settings_of(site))
    job = site.submit("i.effect", tag="first")
    assert site.until_over(job) == {"completed": 1}
    app.control.shutdown()
    if allowed:
        until(lambda: worker.popen.poll() is not None, within=START, what=lambda: worker.log)
        return
    assert app.control.ping(timeout=2) == []
    later = site.submit("i.effect", tag="later")
    assert site.until_over(later) == {"completed": 1}
    assert worker.leave() == 0, worker.log


def test_celery_s_own_worker_without_a_database_is_refused_with_the_reason(site: Site):
    worker = celery(site, "worker", "-n", "one@here", "-c", "1", database_url="")
    until(lambda: worker.popen.poll() is not None, within=START, what=lambda: worker.log)
    assert worker.popen.returncode == 2
    assert "needs PostgreSQL" in worker.log


def shown(port: int, path: str) -> str:
    """Ask Flower; empty while it does not answer."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", headers={"Authorization": "Basic eDp4"}
    )
    with (
        contextlib.suppress(urllib.error.URLError, OSError),
        urllib.request.urlopen(asked, timeout=5) as answer,  # noqa: S310
    ):
        return str(answer.read().decode())
    return ""


def test_documents_taken_in_by_celery_make_the_index_of_a_calm_run(site: Site, tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    fill(folder, 11)
    start_worker(site)
    with dispatching(site):
        job = site.submit("ingest", sources=[str(folder)], settings=PLAIN)
        site.until_over(job, within=100)
    found = logical_index(site.app.db, folder)
    calm = Shelf(tmp_path / "home", folder)
    calm.ingest()
    expected = calm.index()
    calm.close()
    assert found == expected
    assert len(found) > 10
    site.assert_healthy()


def test_a_broker_needs_postgresql_and_an_url_that_celery_knows(tmp_path: Path):
    with pytest.raises(BadInput, match="needs PostgreSQL"):
        celery_settings.check(load({}, home=tmp_path, broker_url="redis://there"))
    with pytest.raises(BadInput, match="must start with redis://, rediss://, amqp://"):
        load({}, home=tmp_path, broker_url="kafka://:secret@there")
    assert ROOT.exists()


def test_a_broker_s_password_is_never_shown():
    assert celery_settings.shown("redis://:secret@there:6379/0") == "redis://there:6379/0"
    assert celery_settings.shown("amqp://user:se@cret@there:5672//") == "amqp://there:5672//"
    assert celery_settings.shown("redis://there/0?password=secret") == "redis://there/0"


def test_doorbells_for_a_queue_of_its_own_reach_only_the_workers_that_serve_it(
    site: Site, valkey: Valkey
):
    # Nobody looks by itself: what runs was rung for, in its own queue of the broker.
    default = start_worker(site, poll_interval=DEAF)
    with dispatching(site):
        held = site.submit("i.slow", tag="held", gate="gate")
        waiting = site.submit_many("i.slow", [{"tag": f"slow{n}"} for n in range(4)])
        usual = site.submit("i.effect", tag="usual")
        assert site.until_over(usual) == {"completed": 1}
        assert valkey.length("slow") == 0, "nobody would take it"
        assert site.rows("attempts") == site.attempts(usual)

        slow = start_worker(site, queues="slow", concurrency=1, poll_interval=DEAF)
        site.until_traced("began", "held")
        until(lambda: valkey.length("slow") > 0, what=site.logs)
        assert valkey.length() == 0
        site.open_gate()
        assert site.until_over([held, *waiting]) == {"completed": 5}
        [row] = [row for row in site.rows("workers") if row.queues == "slow"]
        assert {each.worker_id for each in site.attempts(held)} == {row.id}
        assert row.pid == slow.pid
    for worker in (default, slow):
        assert worker.logs("broker.silent") == []
        assert worker.leave() == 0, worker.log
    site.assert_healthy()
