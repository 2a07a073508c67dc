"""When a failed task runs again: a function of its attempts and crashes."""

#: After so many deaths of its worker or host a task is given up as lost.
MAX_CRASHES = 10


def delay_after_death(crashes: int) -> float:
    """Return the delay after the `crashes`-th death: none for the first two, then 1 s, doubling.

    Without it, whatever kills worker after worker would meet the same innocent tasks at the head
    of the queue each time, until they are given up.
    """
    return 0.0 if crashes < 3 else float(2 ** (crashes - 3))


def delay_after_error(attempt: int, first: float, most: float, spread: float) -> float:
    """Return the delay after the `attempt`-th try: it doubles from `first` to `most` seconds.

    `spread`, a random number in 0…1, changes it by up to 20 %.
    """
    # 2 ** attempt overflows a float for absurd attempts; past 32 the cap decides anyway.
    grown: float = first * 2 ** min(max(attempt - 1, 0), 32)
    return min(grown, most) * (0.8 + 0.4 * spread)
