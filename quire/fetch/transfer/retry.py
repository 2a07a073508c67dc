"""How often and how long a failed try is waited for, the same for every remote source."""

from quire.errors import FetchFailed
from quire.fetch.http_client import Broken
from quire.fetch.items import Check, Limits, SourceOptions

_SLICE = 0.25


class Patience:
    """Counts failed tries in a row and waits between them."""

    def __init__(self, subject: str, options: SourceOptions, check: Check) -> None:
        self._subject = subject
        self._limits: Limits = options.limits
        self._wait = options.wait
        self._clock = options.clock
        self._check = check
        self._begun_at = options.clock()
        self.tries = 0

    def renew(self) -> None:
        """Count from the start again: something arrived."""
        self.tries = 0

    def bear(self, broken: Broken, arrived: str = "") -> None:
        """Wait before the next try, or raise when there is to be none in this run."""
        kept = f" {arrived}" if arrived else ""
        if self.tries >= len(self._limits.delays):
            raise FetchFailed(
                f"{self._subject}: {broken}, {self.tries + 1} times in a row.{kept} "
                "The work is tried again later.",
                retry_after=broken.retry_after,
            ) from broken
        seconds = self._limits.delays[self.tries]
        if broken.retry_after is not None:
            seconds = broken.retry_after
        if seconds > self._limits.longest_wait:
            raise FetchFailed(
                f"{self._subject}: {broken}, and the server asks to wait {seconds:g} s.{kept} "
                "The work is tried again then.",
                retry_after=seconds,
            ) from broken
        self.tries += 1
        self._pause(seconds)
        self.require_time(arrived)

    def require_time(self, arrived: str = "") -> None:
        """Raise when the whole took longer than it may."""
        spent = self._clock() - self._begun_at
        if spent > self._limits.total_seconds:
            raise FetchFailed(
                f"{self._subject}: took longer than the limit (at most "
                f"{self._limits.total_seconds:g} s, got {spent:.0f} s). {arrived} "
                "The work is tried again later."
            )

    def _pause(self, seconds: float) -> None:
        while seconds > 0:
            self._check()
            step = min(seconds, _SLICE)
            self._wait(step)
            seconds -= step
        self._check()
