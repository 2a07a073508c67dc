"""What one tenant's tasks may take from another one, with real workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from quire.control import access, jobs
from quire.control.explain.job import explain_job
from quire.model.records import API, Submission
from tests.integration.processes import Site
from tests.waiting import stays, until


def submit(site: Site, tenant: str, kind: str, tags: list[str], **wish: Any) -> list[int]:
    """Submit jobs as a tenant over the API would."""
    caller = replace(site.app.caller, tenant=tenant, user=f"user of {tenant}", origin=API)
    return jobs.submit(caller, [Submission(kind, {"tag": tag}, **wish) for tag in tags])


def two_tenants(site: Site) -> None:
    for tenant in ("default", "acme"):
        access.create_user(replace(site.app.caller, tenant=tenant), "somebody", "member")


@pytest.mark.core
def test_a_flood_of_long_tasks_leaves_a_child_of_each_worker_to_other_tenants(site: Site):
    two_tenants(site)
    for _ in range(2):
        site.worker()
    flood = submit(site, "default", "i.gated", [f"long{n}" for n in range(50)], priority=1)
    until(lambda: len(site.trace("began")) == 2, what=site.logs)
    theirs = submit(site, "acme", "i.effect", [f"short{n}" for n in range(6)], priority=10)
    assert site.until_over(theirs) == {"completed": 6}
    # A task that was claimed ahead for a child that got free is given back within a second.
    until(lambda: site.states(flood) == {"pending": 48, "running": 2}, what=site.logs)
    mine = replace(site.app.caller, user="user of default")
    until(lambda: explain_job(mine, flood[-1])["code"] == "kept")
    site.open_gate()
    assert site.until_over(flood) == {"completed": 50}
    site.assert_healthy()


def test_a_tenant_gets_one_child_more_only_while_it_runs_nothing_there(embedded: Site):
    two_tenants(embedded)
    embedded.worker(concurrency=3)
    flood = submit(embedded, "default", "i.gated", [f"long{n}" for n in range(5)])
    until(lambda: len(embedded.trace("began")) == 2, what=embedded.logs)
    theirs = submit(embedded, "acme", "i.gated", [f"also{n}" for n in range(5)])
    until(lambda: len(embedded.trace("began")) == 3, what=embedded.logs)
    assert stays(lambda: len(embedded.trace("began")) == 3, during=0.5)
    assert embedded.states(theirs) == {"pending": 4, "running": 1}
    embedded.open_gate()
    assert embedded.until_over([*flood, *theirs]) == {"completed": 10}
    embedded.assert_healthy()


def test_nothing_is_kept_from_the_only_tenant_nor_from_the_command_line(embedded: Site):
    worker = embedded.worker()
    alone = submit(embedded, "default", "i.gated", ["a", "b"])
    until(lambda: len(embedded.trace("began")) == 2, what=embedded.logs)
    embedded.open_gate()
    assert embedded.until_over(alone) == {"completed": 2}
    assert worker.leave() == 0
    two_tenants(embedded)
    embedded.worker()
    local = [
        embedded.submit("i.gated", tag="c", gate="other"),
        embedded.submit("i.gated", tag="d", gate="other"),
    ]
    until(lambda: len(embedded.trace("began")) == 4, what=embedded.logs)
    embedded.open_gate("other")
    assert embedded.until_over(local) == {"completed": 2}


def test_short_tasks_of_a_flood_keep_the_other_children_busy(embedded: Site):
    two_tenants(embedded)
    embedded.worker(concurrency=3)
    flood = submit(embedded, "default", "i.effect", [f"{n}" for n in range(300)])
    theirs = submit(embedded, "acme", "i.effect", [f"other{n}" for n in range(30)])
    assert embedded.until_over([*flood, *theirs]) == {"completed": 330}
    assert len({pid for _, _, pid, *_ in embedded.trace("began")}) == 3
    embedded.assert_healthy()
