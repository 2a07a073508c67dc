"""Huey on SQLite, with its defaults: WAL, and SQLite's own default of synchronous=FULL."""

from collections.abc import Sequence
from pathlib import Path

import huey

from benchmarks.queue.peers import given, marks

app = huey.SqliteHuey(filename=str(Path(given.FOLDER, "huey.db")))


@app.task()
def run(number: int, seconds: float) -> None:
    """Leave marks."""
    marks.run(number, seconds)


def create() -> None:
    """Do nothing: Huey created its tables when it was opened."""


def submit(numbers: Sequence[int], seconds: float) -> None:
    """Submit one by one."""
    for number in numbers:
        run(number, seconds)
