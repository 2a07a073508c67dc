"""Evidence that the kernel ran out of memory: what counts, how long, and for how many deaths."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.runtime.child.memory import MATCH_SECONDS, OomWatch, oom_counters


class Kernel:
    """A file in which kills are counted, as a control group has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count(7)

    def count(self, kills: int) -> None:
        self.path.write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path / "memory.oom_control")


def test_a_kill_explains_one_death(kernel: Kernel):
    watch = OomWatch(kernel.path)
    assert not watch.explain_kill()
    kernel.count(9)
    assert [watch.explain_kill() for _ in range(3)] == [True, True, False]


def test_a_process_that_takes_its_time_to_die_is_explained_all_the_same(kernel: Kernel):
    watch = OomWatch(kernel.path)
    watch.sample(100.0)
    kernel.count(8)
    for after in (1.0, 2.0, MATCH_SECONDS - 0.1):
        watch.sample(100.0 + after)
    assert watch.explain_kill()


def test_a_kill_of_long_ago_explains_nothing(kernel: Kernel):
    watch = OomWatch(kernel.path)
    watch.sample(100.0)
    kernel.count(8)
    watch.sample(101.0)
    watch.sample(101.0 + MATCH_SECONDS)
    assert not watch.explain_kill()
    kernel.count(9)
    assert watch.explain_kill()


def test_without_a_counter_nothing_is_explained(tmp_path: Path):
    watch = OomWatch(tmp_path / "none")
    watch.sample(1.0)
    assert not watch.explain_kill()


FIRST = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
SECOND = "41 31 0:38 {root} /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate"


@pytest.mark.parametrize(
    ("groups", "mounts", "found"),
    [
        # A unit of systemd, on each version.
        (
            "0::/quire.slice/w.service",
            SECOND.format(root="/"),
            "quire.slice/w.service/memory.events",
        ),
        ("4:memory:/w", FIRST.format(root="/"), "memory/w/memory.oom_control"),
        ("4:cpuset,memory:/w", FIRST.format(root="/"), "memory/w/memory.oom_control"),
        # A container, which sees its own group as the root, or only that one of all.
        ("0::/", SECOND.format(root="/"), "memory.events"),
        ("4:memory:/docker/1f", FIRST.format(root="/docker/1f"), "memory/memory.oom_control"),
    ],
)
def test_kills_are_counted_in_the_group_of_the_worker(groups: str, mounts: str, found: str):
    places = list(oom_counters(f"1:cpu:/\n{groups}\n", mounts))
    assert places[-1] == Path("/sys/fs/cgroup", found)
    assert [place.name for place in places[:-1]] in ([], ["memory.events.local"])
