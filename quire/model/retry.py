"""When a failed task tries again: a pure function of the error, the attempts and the crashes."""

from dataclasses import dataclass

#: Deaths of worker or host that a task may suffer before it is given up as lost.
MAX_CRASHES = 10


def delay_after_death(crashes: int) -> float:
    """Return the wait after the `crashes`-th death: none after two, then 1 s, doubling.

    Whatever kills worker after worker would else find the same innocent tasks at the head of the
    queue each time, until they had died often enough to be given up.
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
