"""`quire migrate --to`: moves an embedded installation into PostgreSQL, with progress."""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from quire.cli import console, words
from quire.errors import BadInput, Conflict, Refused

if TYPE_CHECKING:
    from quire.control.doctor import Report
    from quire.settings import Settings
    from quire.store.engine import Database
    from quire.store.move import Moved, Tell

#: Seconds between two lines about one step, where there is no terminal.
LINE_SECONDS = 5.0


def move(to: str, json: bool) -> None:
    """Move, examine the copy, and say what to do next; exits with 1 where it is not healthy."""
    from quire.cli import opening
    from quire.control import doctor, places
    from quire.ingest import place
    from quire.store import move as moving
    from quire.store.engine import Database
    from quire.text.words import indexed_simple

    settings = opening.chosen()
    path = _source(settings, to)
    name = places.without_password(to)
    target = Database.open(to, lease_seconds=settings.lease_seconds)
    try:
        with _told(quiet=json) as tell:
            moved = moving.move(path, target, name=name, analyse=indexed_simple, tell=tell)
        report = doctor.examine(
            target,
            sweep_interval=settings.sweep_interval,
            blobs=place.blobs_in(str(settings.home)),
        )
    finally:
        target.close()
    if json:
        told = {"moved_to": name, "rows": moved.rows, "resumed": moved.is_resumed}
        console.as_json({**told, "not_copied": moved.left, "doctor": doctor.as_json(report)})
    else:
        _say(name, settings.home, moved, report)
    if not report.is_healthy:
        raise typer.Exit(1)


def _source(settings: "Settings", to: str) -> Path:
    """Return the file to move; refuse what cannot be moved, and a home that is at work."""
    from quire.store.engine import Database

    if not to.startswith(("postgresql://", "postgres://")):
        raise BadInput("--to: not a postgresql:// URL. Only to PostgreSQL can Quire be moved.")
    if settings.url:
        raise Refused(
            f"server {settings.url}: this command needs the database, not its API. Run it on "
            "the machine of the server, or unset QUIRE_URL."
        )
    db = Database.open(settings.database, lease_seconds=settings.lease_seconds)
    if db.path is None:
        raise BadInput(
            "--to: the database in use is PostgreSQL, and only an embedded one can be moved. "
            "Unset QUIRE_DATABASE_URL to move that of the home; nothing was changed."
        )
    if not db.path.exists():
        raise BadInput(
            f"home {settings.home}: there is no database to move. Name another folder with "
            "QUIRE_HOME, or begin on PostgreSQL with QUIRE_DATABASE_URL and `quire migrate`."
        )
    try:
        _refuse_at_work(db, settings.home)
    finally:
        db.close()
    return db.path


def _refuse_at_work(db: "Database", home: Path) -> None:
    from quire.runtime import crews
    from quire.store import migrate

    with db.read() as conn:
        rows = crews.listed(db, conn) if migrate.version(conn) else []
    alive = [f"{row['id']} (pid {row['pid']} on {row['host']})" for row in rows if row["alive"]]
    if alive:
        raise Conflict(
            f"home {home}: {words.count(len(alive), 'worker')} at work: {', '.join(alive)}. Stop "
            "`quire up`, or let them end with `quire worker drain`, and run this again; nothing "
            "was changed."
        )


def _say(name: str, home: Path, moved: "Moved", report: "Report") -> None:
    from quire.cli import database

    if moved.is_resumed:
        console.say("It went on where an earlier one had ended.")
    total, tables = sum(moved.rows.values()), len(moved.rows)
    console.say(
        f"moved to {name}: {words.count(total, 'row')} of {words.count(tables, 'table')}, with the "
        "same counts and checksums on both sides."
    )
    if moved.left:
        console.say(
            f"Not copied, as handlers made them and not Quire: {', '.join(moved.left)}. Copy these "
            "before you start anything."
        )
    for line in database.lines(report):
        console.say(line)
    console.say(
        f"Stored files stay in {home}: keep QUIRE_HOME, set QUIRE_DATABASE_URL to the new "
        "database, and start `quire up`. The old one is kept, and refuses to be used."
    )


@contextlib.contextmanager
def _told(*, quiet: bool) -> Iterator["Tell"]:
    if quiet:
        yield lambda step, done, total: None
    elif not sys.stderr.isatty():
        yield _lines()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn())
        with Progress(*columns, MofNCompleteColumn(), console=Console(stderr=True)) as progress:
            bars: dict[str, TaskID] = {}

            def tell(step: str, done: int, total: int) -> None:
                if total and step not in bars:
                    bars[step] = progress.add_task(step, total=total)
                if total:
                    progress.update(bars[step], completed=done)

            yield tell


def _lines() -> "Tell":
    """Write a line when a step is done, and now and then before."""
    due = 0.0

    def tell(step: str, done: int, total: int) -> None:
        nonlocal due
        if total and (done == total or time.monotonic() >= due):
            console.note(f"{step}: {done:,} of {total:,}")
            due = time.monotonic() + LINE_SECONDS

    return tell
