"""What a running task may not exceed, and what the death of its child means for it.

Nothing is killed here. A kill of ours has the reason we gave; a signal that only others send is
a death, which costs the task no attempt; all else is a crash of the task's own making.
"""

import signal
from collections.abc import Iterator

from quire.runtime.child.process import Child, Doom, Head

_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_NEAR_LIMIT = 0.9


def limits(child: Child, head: Head, now: float) -> Iterator[tuple[float, Doom]]:
    """Yield when the running task will have exceeded what, in the order in which reasons count."""
    place, task, started = head
    if place in child.revoked:
        since = child.revoked[place]
        at = max(now if since is None else since, started) + task.grace
        yield at, Doom(place, "revoked", f"did not end within {task.grace:g} s of the stop")
    if task.timeout is not None:
        text = f"ran longer than its limit of {task.timeout:g} s"
        yield started + task.timeout, Doom(place, "timeout", text)
    if task.stall_timeout is not None:
        text = f"made no progress for {task.stall_timeout:g} s"
        yield (
            max(started, child.slate.moved_at()) + task.stall_timeout,
            Doom(place, "stalled", text),
        )


def cause_of_death(child: Child, head: Head, code: int, oom_struck: bool) -> tuple[str, str]:
    """Return the outcome and the error of the task that ran when its child died."""
    if child.doom and child.doom.place in (None, head.place):
        return child.doom.outcome, child.doom.error
    if child.doom:
        return "died", "killed with the task before it, which ended at the same moment"
    if code >= 0:
        return "crashed", f"the child exited with code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    if -code == signal.SIGKILL and (oom_struck or _was_near_limit(child, head)):
        return "memory", "killed by SIGKILL: out of memory"
    if -code in _FROM_OUTSIDE:
        return "died", f"killed by {name} from outside"
    return "crashed", f"killed by {name}"


def _was_near_limit(child: Child, head: Head) -> bool:
    place, used = child.peak
    limit = head.task.memory
    return limit is not None and place == head.place and used > _NEAR_LIMIT * limit
