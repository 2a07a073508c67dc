"""Limits of tenants: what is counted, what is refused, and that others are not."""

from __future__ import annotations

import dataclasses

import pytest

from quire.control import jobs, tenants
from quire.control.caller import Caller
from quire.errors import BadInput, TooLarge, TooMany
from quire.model.contracts import JobKind
from quire.model.records import Submission
from quire.store.documents import pages, quotas

NOOP = JobKind(name="noop", function=lambda ctx: None)


@pytest.fixture
def acme(db) -> Caller:
    return Caller(db, tenant="acme", user="ada", known=lambda: {"noop": NOOP})


def store(caller: Caller, digest: str, size: int) -> None:
    caller.db.write(
        lambda conn, now: pages.put_content(conn, caller.tenant, digest * 64, size, now.wall)
    )


def test_a_tenant_without_limits_has_none(acme):
    assert tenants.shown(acme, "acme") == {
        "name": "acme",
        "limits": dict.fromkeys(quotas.LIMITS),
        "used": dict.fromkeys(quotas.LIMITS, 0),
    }
    store(acme, "a", 1 << 40)
    jobs.submit(acme, [Submission("noop")] * 3)
    assert tenants.shown(acme, "acme")["used"] == {
        "bytes": 1 << 40, "documents": 0, "pages": 0, "jobs": 3, "requests": 0,
    }  # fmt: skip


def test_bytes_past_the_limit_are_refused_with_the_limit_and_what_is_used(acme):
    tenants.change(acme, "acme", {"bytes": 1000})
    store(acme, "a", 600)
    with pytest.raises(TooLarge, match=r"acme: its limit is 1,000 bytes.* and 600 are used"):
        store(acme, "b", 500)
    store(acme, "c", 400)
    store(acme, "a", 600)  # known already, so it adds nothing
    with pytest.raises(TooLarge, match="1,000 bytes"):
        tenants.require_room(acme, 1)
    store(dataclasses.replace(acme, tenant="other"), "b", 500)
    assert tenants.shown(acme, "acme")["used"]["bytes"] == 1000


def test_unfinished_jobs_past_the_limit_are_refused_until_some_end(acme):
    tenants.change(acme, "acme", {"jobs": 2})
    first, _ = jobs.submit(acme, [Submission("noop")] * 2)
    for some in (1, 5):
        with pytest.raises(TooMany, match="its limit is 2 unfinished jobs, and 2 are used"):
            jobs.submit(acme, [Submission("noop")] * some)
    jobs.submit(dataclasses.replace(acme, tenant="other"), [Submission("noop")])
    jobs.cancel(acme, [first])
    jobs.submit(acme, [Submission("noop")])


def test_a_request_that_is_sent_again_gets_its_job_although_the_limit_is_reached(acme):
    tenants.change(acme, "acme", {"jobs": 1})
    made = jobs.submit(acme, [Submission("noop")], key="once")
    assert jobs.submit(acme, [Submission("noop")], key="once") == made
    with pytest.raises(TooMany):
        jobs.submit(acme, [Submission("noop")], key="another")


def test_a_limit_is_changed_alone_and_removed_by_zero(acme):
    tenants.change(acme, "acme", {"jobs": 2, "bytes": 5})
    tenants.change(acme, "acme", {"jobs": 0, "bytes": None, "pages": 7})
    assert tenants.shown(acme, "acme")["limits"] == {
        "bytes": 5, "documents": None, "pages": 7, "jobs": None, "requests": None,
    }  # fmt: skip
    jobs.submit(acme, [Submission("noop")] * 3)
    for wrong in ({"jobs": -1}, {"bytes": 1 << 61}):
        with pytest.raises(BadInput):
            tenants.change(acme, "acme", wrong)


def test_requests_of_a_day_are_added_up_for_all_processes(acme):
    assert tenants.count_requests(acme, 5) == 0  # nobody limits them, so nobody counts
    tenants.change(acme, "acme", {"requests": 10})
    assert tenants.count_requests(acme, 5) == 5
    assert tenants.count_requests(acme, 2) == 7
    assert tenants.shown(acme, "acme")["used"]["requests"] == 7


def test_all_tenants_are_listed_for_the_operator(acme):
    tenants.change(acme, "limited", {"documents": 3})
    jobs.submit(acme, [Submission("noop")])
    found = {each["name"]: each for each in tenants.listed(acme)}
    assert set(found) == {"acme", "limited"}
    assert found["limited"]["limits"]["documents"] == 3
