"""Children that the kernel kills for want of memory, in a control group with a hard limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.control.explain.job import explain_job
from tests import cgroups
from tests.cgroups import Group
from tests.integration.ingest.test_poison import quarantined
from tests.integration.processes import Site

#: Room for a worker and a child with its libraries; one that grows is over it within a second.
ROOM = 700 << 20
HUNGRY = str(Path(__file__).with_name("hungry_file.py"))


@pytest.fixture
def group() -> Iterator[Group]:
    if reason := cgroups.missing():
        pytest.skip(reason)
    with cgroups.limited(ROOM) as made:
        yield made


@pytest.mark.core
def test_a_child_that_the_kernel_kills_for_memory_is_a_crash_of_its_task(site: Site, group: Group):
    worker = site.worker(prefix=group.prefix, plugins=HUNGRY, concurrency=1)
    assert worker.pid in group.pids()
    job = site.submit("o.hungry")
    assert site.until_over(job) == {"failed": 1}
    # Both tries, and each by the kernel: the limits of the kind do not come into it.
    assert site.outcomes(job) == ["memory", "memory"]
    assert group.kills == 2
    assert (site.task(job).attempt, site.task(job).crashes) == (2, 2)
    assert site.task(job).error == "killed by SIGKILL: out of memory"
    assert "out of memory" in explain_job(site.app.caller, job)["text"]
    # The worker is alive and has a child again.
    after = site.submit("o.frugal")
    assert site.until_over(after) == {"completed": 1}
    assert worker.popen.poll() is None
    assert "Traceback" not in worker.log
    site.assert_healthy()


@pytest.mark.core
def test_a_page_for_which_the_kernel_kills_is_quarantined_for_memory(
    site: Site, group: Group, tmp_path: Path
):
    folder = tmp_path / "in"
    folder.mkdir()
    site.settings["concurrency"] = 1
    # Alone from the start, it is read three times, and each time by a fresh child.
    quarantined(site, folder, "HUNGRY", "memory", 2, page_size=1, prefix=group.prefix)
    assert group.kills == 3


def test_a_kill_for_memory_elsewhere_on_the_machine_explains_nothing_here(
    embedded: Site, group: Group
):
    worker = embedded.worker(concurrency=1)
    job = embedded.submit("i.gated", tag="a")
    began = embedded.until_traced("began", "a")
    hog = "x = []\nwhile True: x.append(b'x' * (50 << 20))"
    ended = subprocess.run([*group.prefix, sys.executable, "-c", hog], timeout=60)
    assert (ended.returncode, group.kills) == (-signal.SIGKILL, 1)
    os.kill(int(began[2]), signal.SIGKILL)
    embedded.until_traced("began", "a", times=2)
    embedded.open_gate()
    assert embedded.until_over(job) == {"completed": 1}
    assert embedded.outcomes(job) == ["died", "done"]
    assert embedded.task(job).attempt == 1
    assert worker.popen.poll() is None
