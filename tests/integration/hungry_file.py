"""Handlers that take all memory there is, and none."""

from typing import Any

from quire import job


@job("o.hungry", max_attempts=2, backoff=0.05)
def hungry(ctx: Any) -> None:
    """Take memory without a limit of its own."""
    hoard = []
    while True:
        hoard.append(b"x" * (20 << 20))


@job("o.frugal")
def frugal(ctx: Any) -> None:
    pass
