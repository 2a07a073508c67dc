"""Control groups with a limit of memory, in which the kernel itself kills for want of it.

Made below the group of the test run, with either version of control groups, by whoever may.
"""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.waiting import until


class Group:
    """One group; programs are started in it by `prefix`."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        path.mkdir()
        if (path / "memory.max").exists():
            self._counter = path / "memory.events"
            limits = {"memory.max": limit, "memory.swap.max": 0, "memory.oom.group": 0}
        else:
            self._counter = path / "memory.oom_control"
            limits = {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}
        for name, value in limits.items():
            # Without swap there is no limit of it.
            if (path / name).exists():
                (path / name).write_text(str(value))

    @property
    def prefix(self) -> Sequence[str]:
        """How a program is started in the group, with all that it starts."""
        enter = f'echo $$ > "{self._path / "cgroup.procs"}" && exec "$@"'
        return ["sh", "-c", enter, "sh"]

    @property
    def kills(self) -> int:
        """How often the kernel has killed in the group."""
        found = re.search(r"^oom_kill (\d+)$", self._counter.read_text(), re.MULTILINE)
        assert found, self._counter.read_text()
        return int(found[1])

    def pids(self) -> list[int]:
        return [int(line) for line in (self._path / "cgroup.procs").read_text().split()]

    def remove(self) -> None:
        """End what is left in it, and take it away."""

        def is_empty() -> bool:
            for pid in self.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not self.pids()

        until(is_empty)
        self._path.rmdir()


@contextmanager
def limited(limit: int) -> Iterator[Group]:
    """Make a group that may use so many bytes."""
    parent = _parent()
    assert isinstance(parent, Path), parent
    group = Group(parent / f"quire-test-{uuid.uuid4().hex[:8]}", limit)
    try:
        yield group
    finally:
        group.remove()


def missing() -> str | None:
    """Why no group can be made here, or None where one can."""
    found = _parent()
    if isinstance(found, str):
        return found
    try:
        with limited(1 << 30) as group:
            group.kills  # noqa: B018 (kernels before 4.13 do not count)
    except (OSError, AssertionError) as error:
        return f"memory control group: none can be made below {found} ({error})"
    return None


def _parent() -> Path | str:
    """Where a group can be made: below our own, or the nearest one that hands out memory."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return "memory control group: Linux only"
    own = dict(line.split(":", 2)[1:] for line in lines)
    if "memory" in own:
        return Path("/sys/fs/cgroup/memory" + own["memory"])
    # In the second version a group with processes in it has no groups with limits below it.
    place = Path("/sys/fs/cgroup" + own.get("", "/"))
    for each in (place, *place.parents):
        handed_out = each / "cgroup.subtree_control"
        if handed_out.exists() and "memory" in handed_out.read_text().split():
            return each
    return "memory control group: none above this process hands out memory"
