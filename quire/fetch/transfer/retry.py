"""Retries of failed requests: how many and how long to wait, the same for every remote source."""

import math

from quire.errors import FetchFailed
from quire.fetch.http_client import RetryableError
from quire.fetch.items import Check, Limits, SourceOptions

_CHECK_SECONDS = 0.25


class RetryBudget:
    """Counts consecutive failures and waits between retries."""

    def __init__(self, subject: str, options: SourceOptions, check: Check) -> None:
        self._subject = subject
        self._limits: Limits = options.limits
        self._wait = options.wait
        self._clock = options.clock
        self._say = options.say
        self._check = check
        self._begun_at = options.clock()
        self.tries = 0

    def reset(self) -> None:
        """Start counting again after progress."""
        self.tries = 0

    def wait(self, error: RetryableError, arrived: str = "") -> None:
        """Wait before the next retry, or raise when this run has none left."""
        kept = f" {arrived}" if arrived else ""
        if self.tries >= len(self._limits.delays):
            raise FetchFailed(
                f"{self._subject}: {error}, {self.tries + 1} times in a row.{kept}",
                retry_after=error.retry_after,
            ) from error
        seconds = self._limits.delays[self.tries]
        if error.retry_after is not None:
            seconds = error.retry_after
        if seconds > self._limits.max_wait:
            raise FetchFailed(
                f"{self._subject}: {error}, and the server asks to wait {seconds:g} s.{kept}",
                retry_after=seconds,
            ) from error
        self.tries += 1
        told = None
        while seconds > 0:
            self._check()
            if (left := math.ceil(seconds)) != told:
                self._say(f"next try in {left} s: {error}")
                told = left
            step = min(seconds, _CHECK_SECONDS)
            self._wait(step)
            seconds -= step
        self._say("trying again")
        self._check()
        self.check_total_time(arrived)

    def check_total_time(self, arrived: str = "") -> None:
        """Raise when the transfer exceeds its total time limit."""
        spent = self._clock() - self._begun_at
        if spent > self._limits.total_seconds:
            raise FetchFailed(
                f"{self._subject}: took longer than the limit (at most "
                f"{self._limits.total_seconds:g} s, got {spent:.0f} s). {arrived}".rstrip()
            )
