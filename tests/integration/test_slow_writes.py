"""A handler that sits inside its last transaction is waited for by nobody, nor does it deadlock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from tests import documents
from tests.integration.processes import Site, is_alive
from tests.shelf import PLAIN
from tests.waiting import stays, until

WAITING = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


def count(conn: psycopg.Connection, query: LiteralString) -> int:
    [[number]] = conn.execute(query).fetchall()
    return int(number)


@pytest.fixture
def pg_site(pg_url: str, home: Path) -> Iterator[Site]:
    """SQLite has one writer: there, everybody waits for whoever sits in a transaction."""
    site = Site(home, pg_url).prepare()
    # The time limits of a transaction follow from the lease; a slow test must not reach one.
    site.settings["lease_seconds"] = 60
    yield site
    site.close()


def still_sits(site: Site, tag: str) -> bool:
    """Tell whether the handler is inside its transaction: nobody has waited for its end."""
    pid = int(site.until_traced("inside", tag)[2])
    return is_alive(pid) and site.is_being_written() and not site.trace("refused", tag)


def test_a_stop_of_another_job_is_obeyed_while_a_handler_sits_in_its_transaction(pg_site: Site):
    site = pg_site
    site.worker(concurrency=3)
    deaf = site.submit("i.deaf", tag="deaf")
    pid = int(site.until_traced("began", "deaf")[2])
    sits = ["i.sits", {"tag": "sits", "gate": "sits-gate"}]
    sibling = ["i.gated_plain", {"tag": "sibling", "gate": "sibling-gate"}]
    sitting = site.submit("i.fan", children=[sits, sibling])
    assert still_sits(site, "sits")
    site.until_traced("began", "sibling")
    # The worker settles it, for which it needs the job of the handler that sits.
    site.open_gate("sibling-gate")
    assert stays(lambda: is_alive(pid), during=0.5)
    assert site.stop(deaf) == [deaf]
    until(lambda: not is_alive(pid), within=10, what=site.logs)
    assert still_sits(site, "sits")
    site.open_gate("sits-gate")
    assert site.until_over(sitting) == {"completed": 1}
    assert site.effects() == ["sits"]


def test_others_are_claimed_and_end_while_a_handler_sits_in_its_transaction(pg_site: Site):
    site = pg_site
    site.worker(concurrency=1)
    gated = ["i.gated_plain", {"tag": "sibling", "gate": "open"}]
    job = site.submit("i.fan", children=[["i.sits", {"tag": "sits"}], gated, gated])
    assert still_sits(site, "sits")
    site.open_gate("open")
    site.worker(concurrency=1)
    assert site.until_over(site.submit("i.nothing"), within=10) == {"completed": 1}
    # So are those of the same job, whose row the handler does not hold.
    until(lambda: site.job(job).tasks_done == 3, within=10, what=site.logs)
    assert still_sits(site, "sits")
    site.open_gate()
    assert site.until_over(job) == {"completed": 1}


def test_a_job_is_stopped_while_its_handler_sits_in_its_transaction(pg_site: Site):
    site = pg_site
    site.worker(concurrency=1)
    job = site.submit("i.sits", tag="sits")
    assert still_sits(site, "sits")
    assert site.stop(job) == [job]
    assert still_sits(site, "sits")
    site.open_gate()
    assert site.until_traced("refused", "sits")[2] == "LeaseLost"
    until(lambda: not site.rows("tasks", state="running"), what=site.logs)
    assert (site.effects(), site.job(job).state) == ([], "stopped")
    site.assert_healthy()


def test_a_handlers_last_transaction_and_its_worker_do_not_deadlock(pg_site: Site):
    site = pg_site
    worker = site.worker(concurrency=2)
    job = site.submit(
        "i.fan",
        children=[
            ["i.reporting", {"tag": "writes", "gate": "writes-gate"}],
            ["i.gated_plain", {"tag": "returns", "gate": "returns-gate"}],
        ],
    )
    site.until_traced("began", "writes")
    site.until_traced("began", "returns")
    watcher = psycopg.connect(site.url, autocommit=True)
    with watcher, psycopg.connect(site.url) as holder:
        holder.execute("SELECT id FROM jobs WHERE id = %s FOR NO KEY UPDATE", [job])
        # The worker waits first, to settle and to report progress.
        site.open_gate("returns-gate")
        until(lambda: count(watcher, WAITING) == 1, what=site.logs)
        # Then the child, to end its task.
        site.open_gate("writes-gate")
        until(lambda: count(watcher, WAITING) == 2, what=site.logs)
    assert site.until_over(job) == {"completed": 1}
    assert site.outcomes(job) == ["done"] * 3
    worker.leave()
    with psycopg.connect(site.url) as conn:
        assert count(conn, DEADLOCKS) == 0
    site.assert_healthy()


def test_documents_that_share_pages_are_taken_in_by_several_children_without_a_deadlock(
    pg_site: Site, tmp_path: Path
):
    site = pg_site
    # Pages that the documents have in common, in another order in each of them.
    common = [f"page {n} of the appendix that every report has" for n in range(12)]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for n in range(12):
            own = [*common[n:], f"report {n} of {folder}", *common[:n]]
            (tmp_path / folder / f"{n}.pdf").write_bytes(documents.pdf(*own))
    settings = {**PLAIN, "page_size": 4}
    for _ in range(2):
        site.worker(concurrency=2)
    jobs = [
        site.submit("ingest", sources=[str(tmp_path / folder)], settings=settings)
        for folder in ("a", "b", "a")
    ]
    assert site.until_over(jobs, within=200) == {"completed": 3}
    assert {row.outcome for row in site.rows("attempts")} <= {"done", "skipped", "returned"}
    assert {row.state for row in site.rows("documents")} == {"success"}
    assert site.rows("tasks", kind="ingest.range")
    site.app.close()  # a session tells its statistics when it ends
    with psycopg.connect(site.url, autocommit=True) as watcher:
        assert count(watcher, DEADLOCKS) == 0
