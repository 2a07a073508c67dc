"""Start-time fair queueing: the tag that orders ready tasks of one queue and priority.

An owner's next tag starts where the owner's own ready work ends, or, for an owner without any,
where the queue has got to; so nobody saves up credit and nobody pays for work they cancelled.
"""


def start(own_last: float | None, claimed: float | None) -> float:
    """Return where an owner's next task starts in the order."""
    return max(own_last or 0.0, claimed or 0.0)


def next_tag(start: float, cost: float, weight: float) -> float:
    """Return the tag of a task, which is where the owner's next one starts."""
    return start + cost / weight
