"""What a plugin author writes: a function marked with `@job`.

A mark only attaches a description; `plugins.py` collects marked functions from modules.
There is no registry to import into and no side effect of importing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

MARK = "__quire__"


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job: its function and how it is to be run."""

    name: str
    function: Callable[..., Any]
    queue: str = "default"
    max_attempts: int = 3
    timeout: float | None = 3600.0
    memory: int | None = None
    wedged: float | None = None
    grace: float = 0.5
    backoff: float = 60.0
    backoff_most: float = 300.0
    at_most_once: bool = False
    reason: str = ""


def job(
    name: str,
    *,
    retries: int = 2,
    timeout: float | None = 3600.0,
    memory: int | None = None,
    wedged: float | None = None,
    grace: float = 0.5,
    backoff: float = 60.0,
    backoff_most: float = 300.0,
    queue: str = "default",
    at_most_once: bool = False,
    reason: str = "",
) -> Callable[[F], F]:
    """Mark a function as the handler of a job kind.

    `retries` are tries after the first; `timeout`, `wedged` (no progress) and `grace` (after a
    stop) are seconds; `memory` is bytes. A kind that must not run twice says so with
    `at_most_once=True` and the `reason`.
    """
    _check(name, retries, at_most_once, reason)

    def mark(function: F) -> F:
        kind = JobKind(
            name=name,
            function=function,
            queue=queue,
            max_attempts=1 if at_most_once else retries + 1,
            timeout=timeout,
            memory=memory,
            wedged=wedged,
            grace=grace,
            backoff=backoff,
            backoff_most=max(backoff, backoff_most),
            at_most_once=at_most_once,
            reason=reason,
        )
        setattr(function, MARK, kind)
        return function

    return mark


def _check(name: str, retries: int, at_most_once: bool, reason: str) -> None:
    if not name or not name.replace("_", "").replace("-", "").replace(".", "").isalnum():
        raise ValueError(f"@job({name!r}): a kind's name has letters, digits, '.', '-' and '_'")
    if not 0 <= retries <= 1000:
        raise ValueError(f"@job({name!r}): retries must be 0 to 1000, not {retries}")
    if at_most_once and not reason:
        raise ValueError(f"@job({name!r}): at_most_once needs reason='why it must not run twice'")
