"""Memory use of a child and its descendants, and kills by the kernel's OOM killer.

On Linux the descendants are read from /proc, which takes microseconds; psutil would scan every
process of the machine. Other systems use psutil.
"""

import contextlib
import os
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import psutil

SAMPLE_EVERY = 1.0
#: Seconds after which an OOM kill that matches no dead child is ignored; its victim may be a
#: program that a handler started.
MATCH_SECONDS = 5.0

_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_HAS_CHILDREN_FILE = Path("/proc/thread-self/children").exists()


def rss_of(pid: int) -> int:
    """Return the resident bytes of one process, 0 if it is gone."""
    try:
        if _HAS_CHILDREN_FILE:
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
        return int(psutil.Process(pid).memory_info().rss)
    except (OSError, IndexError, psutil.Error):
        return 0


def rss_of_tree(pid: int) -> int:
    """Return the resident bytes of a process and its descendants; shared pages count repeatedly."""
    return rss_of(pid) + sum(rss_of(each) for each in _descendants(pid))


def _descendants(pid: int) -> list[int]:
    try:
        if not _HAS_CHILDREN_FILE:
            return [each.pid for each in psutil.Process(pid).children(recursive=True)]
        found: list[int] = []
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except (OSError, psutil.Error):
        return []
    return found + [each for own in found for each in _descendants(own)]


class OomWatch:
    """Tells whether an OOM kill explains the death of a child.

    The kernel counts a kill when it decides on it, and a large process dies only seconds later. So
    the kills of the last seconds count, and each explains one death.
    """

    def __init__(self, counter: Path | None = None) -> None:
        self._counter = counter or _oom_counter()
        self._explained = _oom_kills(self._counter)
        self._samples: deque[tuple[float, int]] = deque()

    def sample(self, now: float) -> None:
        """Read the counter, and forget older kills; cheap enough to be called often."""
        if self._samples and now < self._samples[-1][0] + SAMPLE_EVERY:
            return
        self._samples.append((now, _oom_kills(self._counter)))
        while self._samples[0][0] <= now - MATCH_SECONDS:
            self._explained = max(self._explained, self._samples.popleft()[1])

    def explain_kill(self) -> bool:
        """Tell whether there is an unexplained OOM kill, and use it up."""
        if _oom_kills(self._counter) <= self._explained:
            return False
        self._explained += 1
        return True


def _oom_kills(counter: Path) -> int:
    return int((_match(counter) or ["", "0"])[1])


def _match(counter: Path) -> "re.Match[str] | None":
    try:
        return _OOM_KILLS.search(counter.read_text())
    except OSError:
        return None


def _oom_counter() -> Path:
    """Return the file that counts OOM kills of this control group, else of the machine.

    Kills in other containers must not count.
    """
    with contextlib.suppress(OSError, ValueError):
        ours = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
        for path in oom_counters(*ours):
            if _match(path):
                return path
    return Path("/proc/vmstat")


def oom_counters(groups: str, mounts: str) -> Iterator[Path]:
    """Yield where the counter of a control group may be, for cgroup v1 and v2."""
    lines = [line.split(":", 2) for line in groups.splitlines()]
    own = {name: path for _, names, path in lines for name in names.split(",")}
    for mount in mounts.splitlines():
        left, _, right = mount.partition(" - ")
        root, at = left.split()[3:5]
        kind, _, options = right.split()[:3]
        if kind == "cgroup" and "memory" in options.split(",") and "memory" in own:
            yield Path(at, os.path.relpath(own["memory"], root), "memory.oom_control")
        elif kind == "cgroup2" and "" in own:
            # The local file excludes nested groups; older kernels do not have it.
            yield Path(at, os.path.relpath(own[""], root), "memory.events.local")
            yield Path(at, os.path.relpath(own[""], root), "memory.events")
