"""How much memory a child and its descendants use, and whether the kernel ran out of it.

On Linux a child's descendants are read from /proc, which costs microseconds; psutil would look
at every process of the machine. Elsewhere psutil does it.
"""

import contextlib
import os
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import psutil

LOOK_EVERY = 1.0
#: Seconds after which a kill that explained no death is another's, as of a program of a handler.
REMEMBERED = 5.0

_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LISTS_CHILDREN = Path("/proc/thread-self/children").exists()


def rss_of(pid: int) -> int:
    """Return the resident bytes of one process, 0 when it is gone."""
    try:
        if _LISTS_CHILDREN:
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
        return int(psutil.Process(pid).memory_info().rss)
    except (OSError, IndexError, psutil.Error):
        return 0


def rss_of_tree(pid: int) -> int:
    """Return the resident bytes of a process and its descendants; shared pages count in each."""
    return rss_of(pid) + sum(rss_of(each) for each in _descendants(pid))


def _descendants(pid: int) -> list[int]:
    try:
        if not _LISTS_CHILDREN:
            return [each.pid for each in psutil.Process(pid).children(recursive=True)]
        found: list[int] = []
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except (OSError, psutil.Error):
        return []
    return found + [each for own in found for each in _descendants(own)]


class OomWatch:
    """Tells whether the kernel's lack of memory explains a death.

    The kernel counts a kill when it decides on it, and a large process takes its time to die of it:
    kills of the last seconds count, and each explains one death.
    """

    def __init__(self, counter: Path | None = None) -> None:
        self._counter = counter or _oom_counter()
        self._explained = _oom_kills(self._counter)
        self._looks: deque[tuple[float, int]] = deque()

    def look(self, now: float) -> None:
        """Forget older kills; cheap enough to be called often."""
        if self._looks and now < self._looks[-1][0] + LOOK_EVERY:
            return
        self._looks.append((now, _oom_kills(self._counter)))
        while self._looks[0][0] <= now - REMEMBERED:
            self._explained = max(self._explained, self._looks.popleft()[1])

    def has_struck(self) -> bool:
        """Tell whether there was a kill that has not explained a death yet, and let it do so."""
        if _oom_kills(self._counter) <= self._explained:
            return False
        self._explained += 1
        return True


def _oom_kills(counter: Path) -> int:
    return int((_counted(counter) or ["", "0"])[1])


def _counted(counter: Path) -> "re.Match[str] | None":
    try:
        return _OOM_KILLS.search(counter.read_text())
    except OSError:
        return None


def _oom_counter() -> Path:
    """Find what counts kills among the processes of our control group, else of the machine.

    A kill in another container is no evidence of anything here.
    """
    with contextlib.suppress(OSError, ValueError):
        ours = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
        for place in oom_counters(*ours):
            if _counted(place):
                return place
    return Path("/proc/vmstat")


def oom_counters(groups: str, mounts: str) -> Iterator[Path]:
    """Yield where the counter of a control group may be, with either version of them."""
    lines = [line.split(":", 2) for line in groups.splitlines()]
    own = {name: path for _, names, path in lines for name in names.split(",")}
    for mount in mounts.splitlines():
        left, _, right = mount.partition(" - ")
        root, at = left.split()[3:5]
        kind, _, options = right.split()[:3]
        if kind == "cgroup" and "memory" in options.split(",") and "memory" in own:
            yield Path(at, os.path.relpath(own["memory"], root), "memory.oom_control")
        elif kind == "cgroup2" and "" in own:
            # Without what happens in groups below ours, where the kernel tells them apart.
            yield Path(at, os.path.relpath(own[""], root), "memory.events.local")
            yield Path(at, os.path.relpath(own[""], root), "memory.events")
