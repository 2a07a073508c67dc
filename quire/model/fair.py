"""Start-time fair queueing: the tag that orders ready tasks of one queue and priority.

An owner's next tag starts where the owner's own ready work ends, or, for an owner without any,
where the queue has got to; so nobody saves up credit and nobody pays for work they cancelled.
"""


def tags(
    owner_last: float | None, claimed: float | None, costs: list[float], weight: float
) -> list[float]:
    """Return one tag for each cost, in order."""
    at = max(owner_last or 0.0, claimed or 0.0)
    out = []
    for cost in costs:
        at += cost / weight
        out.append(at)
    return out
