"""Promise G3: a worker that lost its lease matches no row. Stopped processes play the zombies."""

from __future__ import annotations

import signal

import pytest

from tests.integration.processes import Running, Site, is_alive, is_stopped
from tests.waiting import until


def freeze(site: Site, worker: Running) -> None:
    """Stop a worker and its children between two transactions: inside one is another test."""

    def is_frozen() -> bool:
        worker.tell_tree(signal.SIGSTOP)
        until(lambda: all(is_stopped(each.pid) for each in worker.tree()), what="it runs on")
        if site.is_being_written():
            worker.tell_tree(signal.SIGCONT)
            return False
        return True

    until(is_frozen)


@pytest.mark.parametrize("kind", ["i.gated", "i.gated_plain"])
def test_a_worker_that_slept_past_its_lease_writes_nothing_and_works_on(site: Site, kind: str):
    first = site.worker()
    job = site.submit(kind, tag="a")
    site.until_traced("began", "a")
    freeze(site, first)
    second = site.worker()
    site.until_traced("began", "a", times=2)
    site.open_gate()
    assert site.until_over(job) == {"completed": 1}
    first.tell_tree(signal.SIGCONT)
    second.kill()
    # The revived worker is the only one now: what comes next is its work.
    after = site.submit("i.gated", tag="b")
    assert site.until_over(after) == {"completed": 1}
    assert site.effects() == (["a", "b"] if kind == "i.gated" else ["b"])
    assert site.outcomes(job) == ["died", "done"]
    # Whichever came first: its lease was missed, its child's commit was refused, or its own.
    assert (
        first.logs("task.revoked")
        or first.logs("task.refused")
        or site.trace("refused", "a", "LeaseLost")
    ), first.log
    assert first.leave() == 0
    site.assert_healthy()


@pytest.mark.core
def test_the_renewals_of_a_zombie_are_refused_while_the_new_holder_still_runs(site: Site):
    first = site.worker()
    job = site.submit("i.gated", tag="a")
    began = site.until_traced("began", "a")
    freeze(site, first)
    site.worker()
    site.until_traced("began", "a", times=2)
    holder = site.task(job)
    first.tell_tree(signal.SIGCONT)
    until(lambda: first.logs("task.revoked"), what=lambda: first.log)
    until(lambda: not is_alive(int(began[2])), what="the zombie's child runs on")
    now = site.task(job)
    assert (now.fence, now.worker_id, now.state) == (holder.fence, holder.worker_id, "running")
    site.open_gate()
    assert site.until_over(job) == {"completed": 1}
    assert site.effects() == ["a"]
    site.assert_healthy()


def test_a_child_that_stops_inside_its_write_transaction_commits_nothing(site: Site):
    worker = site.worker()
    job = site.submit("i.freezes", tag="a")
    pid = int(site.until_traced("began", "a")[2])
    # SQLite: whoever waits for the lock ends its holder. PostgreSQL: the server ends the session,
    # and the worker the run, at the limit of its kind.
    assert site.until_over(job) == {"completed": 1}
    assert not is_alive(pid)
    assert site.outcomes(job)[-1] == "done"
    after = site.submit("i.effect", tag="b")
    assert site.until_over(after) == {"completed": 1}
    assert site.effects() == ["a", "b"]
    assert worker.popen.poll() is None, worker.log
    site.assert_healthy()


def test_a_worker_that_stops_while_its_child_writes_commits_nothing_when_it_wakes(site: Site):
    first = site.worker()
    job = site.submit("i.freezes", tag="a", whole=True)
    pid = int(site.until_traced("began", "a")[2])
    until(lambda: is_stopped(first.pid), what=site.logs)
    site.worker()
    assert site.until_over(job) == {"completed": 1}
    first.tell_tree(signal.SIGCONT)
    until(lambda: site.trace("refused", "a") or not is_alive(pid), what=site.logs)
    after = site.submit("i.effect", tag="b")
    assert site.until_over(after) == {"completed": 1}
    assert site.effects() == ["a", "b"]
    assert site.outcomes(job) == ["died", "done"]
    assert first.popen.poll() is None, first.log
    site.assert_healthy()


def test_a_worker_whose_child_stopped_inside_a_transaction_keeps_its_other_leases(site: Site):
    """A lock that one child holds must not make its worker lose what its other children run."""
    worker = site.worker()
    other = site.submit("i.gated", tag="long")
    site.until_traced("began", "long")
    job = site.submit("i.freezes", tag="a")
    site.until_traced("began", "a")
    assert site.until_over(job) == {"completed": 1}
    site.open_gate()
    assert site.until_over(other) == {"completed": 1}
    assert site.outcomes(other) == ["done"], worker.log
    assert site.effects() == ["a", "long"]
    site.assert_healthy()
