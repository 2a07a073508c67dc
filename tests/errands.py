"""A plugin for tests of the API: kinds that its users may submit, unlike Quire's own for trying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quire import Context, job

PLUGIN = str(Path(__file__))


@job("errand", max_attempts=3)
def errand(ctx: Context, **payload: Any) -> None:
    """Do nothing."""


@job("errand.long", max_attempts=3)
def long_errand(ctx: Context, seconds: float = 1.0) -> None:
    """Do nothing, under a name of its own."""


@job("errand.private", internal=True)
def private_errand(ctx: Context, **payload: Any) -> None:
    """Do what users of the API may not ask for."""
