"""Quire: its environment names this module as a plugin, and the database.

Only `create` loads the App: the processes that run jobs import this module too.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from benchmarks.queue.peers import marks
from quire import Context, Submission, job

if TYPE_CHECKING:
    from quire import App

_apps: list["App"] = []


@job("peers.job", max_attempts=50)
def run(ctx: Context, number: int, seconds: float) -> None:
    """Leave marks."""
    marks.run(number, seconds)


def create() -> None:
    """Create the schema."""
    from quire import App, settings
    from quire.store import open_database

    with closing(open_database(settings.load().database)) as db:
        db.migrate()
    _apps.append(App())


def submit(numbers: Sequence[int], seconds: float) -> None:
    """Submit one by one."""
    for number in numbers:
        _apps[0].submit("peers.job", number=number, seconds=seconds)


def submit_many(numbers: Sequence[int]) -> None:
    """Submit in one call."""
    _apps[0].submit_many([Submission("peers.job", {"number": n, "seconds": 0.0}) for n in numbers])
