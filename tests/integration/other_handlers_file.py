"""A second plugin: kinds that only some workers know."""

from typing import Any

from quire import job
from tests.integration.handlers_file import note


@job("o.rare")
def rare(ctx: Any, tag: str) -> None:
    note("rare", tag)
