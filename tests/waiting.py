"""Waits for real processes: a condition is polled until it holds or its time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_STEP = 0.02
_LONGEST_STEP = 0.1


def until(
    condition: Callable[[], T], *, within: float = 60.0, what: Callable[[], object] | str = ""
) -> T:
    """Return the condition's first true value, or fail with `what` was there instead."""
    end = time.monotonic() + within
    while True:
        asked = time.monotonic()
        if found := condition():
            return found
        now = time.monotonic()
        if now > end:
            seen = what() if callable(what) else what
            raise AssertionError(f"not within {within:g} s; {seen}")
        # A costly look, as at every process, takes time from those that are waited for.
        threading.Event().wait(max(_STEP, min(3 * (now - asked), _LONGEST_STEP)))


def stays(condition: Callable[[], object], *, during: float) -> bool:
    """Tell whether the condition holds at every look for some seconds."""
    end = time.monotonic() + during
    while time.monotonic() < end:
        if not condition():
            return False
        threading.Event().wait(_STEP)
    return True
