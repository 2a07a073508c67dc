"""`quire migrate --to`: moves an embedded installation into PostgreSQL, with progress."""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from quire.cli import console, formatting
from quire.errors import BadInput, Conflict, Refused

if TYPE_CHECKING:
    from quire.control.blob_copy import Copied
    from quire.control.doctor import Report
    from quire.settings import Settings
    from quire.store.db.engine import Database
    from quire.store.transfer.copy import Moved, Tell

#: Seconds between two lines about one step, where there is no terminal.
LINE_SECONDS = 5.0


def move(to: str, blobs: str | None, json: bool) -> None:
    """Move, examine the copy, and say what to do next; exits with 1 where it is not healthy.

    With `blobs`, the files are copied into that bucket first.
    """
    from quire.cli import blob_copy, session
    from quire.control import doctor
    from quire.ingest import resources
    from quire.store.db import urls
    from quire.store.db.engine import Database
    from quire.store.transfer import copy as moving
    from quire.text.words import indexed_simple

    settings = session.chosen()
    path = _source(settings, to)
    name = urls.without_password(to)
    copied = _copied(settings, blobs, json)
    target = Database.open(to, lease_seconds=settings.lease_seconds)
    try:
        with told(quiet=json) as tell:
            moved = moving.move(path, target, name=name, analyse=indexed_simple, tell=tell)
        report = doctor.examine(
            target,
            sweep_interval=settings.sweep_interval,
            blobs=resources.blobs_of({**settings.for_children, "blobs": blobs or settings.blobs}),
        )
    finally:
        target.close()
    if json:
        known = {"moved_to": name, "rows": moved.rows, "resumed": moved.is_resumed}
        if copied and blobs:
            known["blobs"] = blob_copy.as_json(blobs, copied)
        console.as_json({**known, "not_copied": moved.left, "doctor": doctor.as_json(report)})
    else:
        _say(name, _files(settings, blobs), moved, report)
    if not report.is_healthy:
        raise typer.Exit(1)


def _copied(settings: "Settings", blobs: str | None, json: bool) -> "Copied | None":
    """Copy the files first: nothing is switched by that, and a refusal changes nothing."""
    from quire.cli import blob_copy

    if blobs is None:
        return None
    from quire.store.db.engine import Database

    db = Database.open(settings.database, lease_seconds=settings.lease_seconds)
    try:
        copied, _ = blob_copy.run(settings, db, blobs, quiet=json)
    finally:
        db.close()
    if copied.lost:
        blob_copy.say(settings, blobs, copied, 0)
        raise Conflict("the database was not moved: not all files could be copied. See above.")
    return copied


def _files(settings: "Settings", blobs: str | None) -> str:
    """Say where the files are from now on."""
    if blobs or settings.blobs:
        return f"Stored files are in {blobs or settings.blobs}: set QUIRE_BLOBS to it"
    return f"Stored files stay in {settings.home}: keep QUIRE_HOME"


def _source(settings: "Settings", to: str) -> Path:
    """Return the file to move; refuse what cannot be moved, and a home that is at work."""
    from quire.store.db.engine import Database

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
    from quire.runtime.worker import live_workers
    from quire.store.db import migrate

    with db.read() as conn:
        rows = live_workers.listed(db, conn) if migrate.version(conn) else []
    alive = [f"{row['id']} (pid {row['pid']} on {row['host']})" for row in rows if row["alive"]]
    if alive:
        raise Conflict(
            f"home {home}: {formatting.count(len(alive), 'worker')} at work: {', '.join(alive)}. "
            "Stop `quire up`, or let them end with `quire worker drain`, and run this again; "
            "nothing was changed."
        )


def _say(name: str, files: str, moved: "Moved", report: "Report") -> None:
    from quire.cli import database

    if moved.is_resumed:
        console.say("It went on where an earlier one had ended.")
    total, tables = sum(moved.rows.values()), len(moved.rows)
    console.say(
        f"moved to {name}: {formatting.count(total, 'row')} of "
        f"{formatting.count(tables, 'table')}, with the same counts and checksums on both sides."
    )
    if moved.left:
        console.say(
            f"Not copied, as handlers made them and not Quire: {', '.join(moved.left)}. Copy these "
            "before you start anything."
        )
    for line in database.lines(report):
        console.say(line)
    console.say(
        f"{files}, set QUIRE_DATABASE_URL to the new database, and start `quire up`. The old one "
        "is kept, and refuses to be used."
    )


@contextlib.contextmanager
def told(*, quiet: bool) -> Iterator["Tell"]:
    """Give a way to tell of progress, by bars or by lines."""
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
