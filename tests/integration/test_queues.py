"""Queues of their own: a kind is put into one, and only workers that serve it run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.control import outages
from quire.control.explain.job import explain_job
from tests.integration.ingest.test_ingest_deaths import SETTINGS, book
from tests.integration.processes import Running, Site
from tests.waiting import stays, until


def ran_by(site: Site, kind: str) -> set[int]:
    """The processes of the workers that finished tasks of a kind."""
    pids = {row.id: row.pid for row in site.rows("workers")}
    tasks = {row.id for row in site.rows("tasks", kind=kind)}
    return {pids[row.worker_id] for row in site.rows("attempts") if row.task_id in tasks}


def told(site: Site) -> list[str]:
    """What status, doctor and dashboard say."""
    with site.app.db.read() as conn:
        return outages.listed(conn, "default", now=site.app.db.now(conn), max_silence=60.0)


def serving(site: Site, queue: str) -> Running:
    return site.worker(queues=queue)


@pytest.mark.core
def test_a_task_in_a_queue_of_its_own_is_run_by_the_worker_that_serves_it_and_by_no_other(
    site: Site,
):
    default = serving(site, "default")
    slow = [site.submit("i.slow", tag=f"slow{n}") for n in range(3)]
    usual = [site.submit("i.effect", tag=f"usual{n}") for n in range(3)]
    assert site.until_over(usual) == {"completed": 3}
    assert stays(lambda: site.states(slow) == {"pending": 3}, during=1.0)
    why = explain_job(site.app.caller, slow[0])
    assert "No running worker serves queue 'slow'. They serve default." in why["text"]
    assert why["next"] == "Start one that does: `QUIRE_QUEUES=slow quire worker`."
    assert [each for each in told(site) if "Queue 'slow' has ready tasks" in each]

    second = serving(site, "slow")
    assert site.until_over(slow) == {"completed": 3}
    until(lambda: not [each for each in told(site) if "slow" in each], what=lambda: str(told(site)))
    assert ran_by(site, "i.slow") == {second.pid}
    assert ran_by(site, "i.effect") == {default.pid}
    assert site.effects() == sorted(f"{name}{n}" for name in ("slow", "usual") for n in range(3))
    site.assert_healthy()


@pytest.mark.core
def test_an_operator_puts_kinds_that_come_with_quire_into_a_queue_by_a_setting(
    site: Site, tmp_path: Path
):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "large.pdf").write_bytes(book("large", 10))
    (folder / "small.txt").write_text("words")
    site.settings["routes"] = "ingest.document=pages,ingest.range=pages"
    default, pages = serving(site, "default"), serving(site, "pages")
    job = site.submit("ingest", sources=[str(folder)], settings=SETTINGS)
    assert site.until_over(job, within=100) == {"completed": 1}
    assert ran_by(site, "ingest") == ran_by(site, "ingest.swap") == {default.pid}
    assert ran_by(site, "ingest.document") == ran_by(site, "ingest.range") == {pages.pid}
    site.assert_healthy()


def test_a_worker_that_serves_two_queues_runs_both_and_one_of_a_wrong_setting_says_so(
    embedded: Site,
):
    worker = embedded.worker(queues="default,slow", routes="no.such=slow")
    ids = [embedded.submit("i.slow", tag="a"), embedded.submit("i.effect", tag="b")]
    assert embedded.until_over(ids) == {"completed": 2}
    assert worker.logs("kind.unknown", "kind=no.such", "queue=slow")


def test_a_worker_that_starts_without_the_setting_says_which_queues_it_changes(embedded: Site):
    first = embedded.worker(routes="i.effect=slow")
    second = embedded.worker()
    job = embedded.submit("i.effect", tag="a")
    assert embedded.until_over(job) == {"completed": 1}
    assert not first.logs("kind.moved")
    assert second.logs("kind.moved", "kind=i.effect", "old=slow", "queue=default")


def test_an_idle_worker_without_a_plugin_does_not_slow_the_one_that_has_it(site: Site):
    # A task that it set aside would wait for a sweep.
    able = site.worker(concurrency=1, sweep_interval=300)
    site.worker(plugins="", concurrency=4, sweep_interval=300)
    jobs = site.submit_many("i.wait", [{"tag": f"{n}", "seconds": 0.05} for n in range(20)])
    assert site.until_over(jobs, within=20) == {"completed": 20}
    for n in range(5):  # each meets two idle workers
        assert site.until_over(site.submit("i.wait", tag=f"one{n}", seconds=0.0), within=4)
    assert ran_by(site, "i.wait") == {able.pid}
