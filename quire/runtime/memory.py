"""How much memory a child and its descendants use, and whether the kernel ran out of it.

On Linux a child's descendants are read from /proc, which costs microseconds; psutil would look
at every process of the machine. Elsewhere psutil does it.
"""

import os
from pathlib import Path

import psutil

LOOK_EVERY = 1.0

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
    """Tells whether the kernel has killed for want of memory since about a second ago."""

    def __init__(self) -> None:
        self._kills = _oom_kills()
        self._looked_at = 0.0

    def look(self, now: float) -> None:
        """Forget older kills; cheap enough to be called often."""
        if now >= self._looked_at + LOOK_EVERY:
            self._looked_at = now
            self._kills = _oom_kills()

    def has_struck(self) -> bool:
        """Tell whether there was a kill since the last look; the answer is given once."""
        before, self._kills = self._kills, _oom_kills()
        return self._kills > before


def _oom_kills() -> int:
    try:
        counters = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    return int((counters.partition("\noom_kill ")[2].split(None, 1) or ["0"])[0])
