"""Start-time fair queueing: the tag that orders ready tasks of one queue and priority.

The next tag of an owner starts at the end of the owner's ready tasks, or, without any, at the tag
that was claimed last. So nobody saves up credit, and nobody pays for cancelled work.
"""


def start(own_last: float | None, claimed: float | None) -> float:
    """Return the start tag of an owner's next task."""
    return max(own_last or 0.0, claimed or 0.0)


def next_tag(start: float, cost: float, weight: float) -> float:
    """Return the tag of a task, which is the start tag of the owner's next one."""
    return start + cost / weight
