"""When a failed task runs again: a function of its attempts and crashes."""

from dataclasses import dataclass

#: After so many deaths of its worker or host a task is given up as lost.
MAX_CRASHES = 10


def delay_after_death(crashes: int) -> float:
    """Return the delay after the `crashes`-th death: none for the first two, then 1 s, doubling.

    Without it, whatever kills worker after worker would meet the same innocent tasks at the head
    of the queue each time, until they are given up.
    """
    return 0.0 if crashes < 3 else float(2 ** (crashes - 3))


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that double from `first` to `most` seconds, spread by up to `jitter` of themselves."""

    first: float = 60.0
    most: float = 300.0
    jitter: float = 0.2

    def delay(self, attempt: int, spread: float) -> float:
        """Return the wait after `attempt` tries; `spread` is a random number in 0…1."""
        # 2 ** attempt overflows a float for absurd attempts; past 32 the cap decides anyway.
        grown: float = self.first * 2 ** min(max(attempt - 1, 0), 32)
        whole = min(grown, self.most)
        return whole * (1 - self.jitter + 2 * self.jitter * spread)
