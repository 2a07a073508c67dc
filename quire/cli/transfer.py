"""`quire transfer`: copies an embedded database to PostgreSQL, and stored files to a bucket."""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from quire import format
from quire.cli import console, database, options, session
from quire.control import blob_copy, doctor
from quire.control.blob_copy import Copied
from quire.errors import BadInput, Conflict, Refused
from quire.fetch.blobs.backend import open_blobs
from quire.fetch.blobs.bucket import BlobBucket
from quire.ingest import document_words
from quire.runtime.worker import liveness
from quire.settings import Settings
from quire.store import open_database
from quire.store.db import migrate, urls
from quire.store.db.engine import Database
from quire.store.transfer import copy
from quire.store.transfer.copy import ReportProgress, Transferred
from quire.text.words import tsvector_input

#: Seconds between two progress lines of one step when stderr is not a terminal.
LINE_SECONDS = 5.0
#: How many files that could not be copied are listed.
LISTED_FAILURES = 5

Target = Annotated[
    str | None,
    options.argument(
        "URL", "Empty PostgreSQL database, as in postgresql://user@host/quire.", show_default=False
    ),
]
Blobs = Annotated[
    str | None,
    options.option("URL", "Bucket for the stored files, as in s3://BUCKET/PREFIX.", "--blobs"),
]


def transfer(url: Target = None, blobs: Blobs = None, json: options.Json = False) -> None:
    """Move to PostgreSQL, or stored files to a bucket.

    Copies the embedded database of the home to an empty PostgreSQL database, verifies the copy,
    and marks the old database as moved. With --blobs, also copies the stored files; with --blobs
    alone, only those, and nothing is switched. If it was interrupted, run it again: it continues
    where it stopped.
    """
    if url is not None:
        _transfer_database(url, blobs, json)
    elif blobs is not None:
        _transfer_files(blobs, json)
    else:
        raise BadInput(
            "quire transfer: no target. Name a PostgreSQL URL, or a bucket with --blobs."
        )


def _transfer_database(url: str, blobs: str | None, json: bool) -> None:
    settings = session.load_settings()
    path = _source(settings, url)
    name = urls.without_password(url)
    copied = None if blobs is None else _files_first(settings, blobs, json)
    target = open_database(url, lease_seconds=settings.lease_seconds)
    try:
        with _progress(quiet=json) as tell:
            moved = copy.transfer(path, target, name=name, analyse=tsvector_input, report=tell)
        document_words.index_missing(target)
        report = doctor.examine(
            target,
            sweep_interval=settings.sweep_interval,
            blobs=open_blobs({**settings.for_children, "blobs": blobs or settings.blobs}),
        )
    finally:
        target.close()
    if json:
        known = {"transferred_to": name, "rows": moved.rows, "resumed": moved.is_resumed}
        if copied and blobs:
            known["blobs"] = _as_json(blobs, copied)
        console.as_json({**known, "not_copied": moved.not_copied, "doctor": report.as_json()})
    else:
        files = f"Stored files stay in {settings.home}: keep QUIRE_HOME"
        if bucket := blobs or settings.blobs:
            files = f"Stored files are in {bucket}: set QUIRE_BLOBS to it"
        _print_database(name, files, moved, report)
    if not report.is_healthy:
        raise typer.Exit(1)


def _files_first(settings: Settings, blobs: str, json: bool) -> Copied:
    """Copy the files before the database: if that fails, nothing has changed."""
    db = open_database(settings.database, lease_seconds=settings.lease_seconds)
    try:
        copied, _ = _copy_files(settings, db, blobs, quiet=json)
    finally:
        db.close()
    if copied.lost:
        _print_files(settings, blobs, copied, 0)
        raise Conflict("The database was not transferred: some files could not be copied.")
    return copied


def _source(settings: Settings, url: str) -> Path:
    """Return the SQLite file to copy, or refuse: wrong target, no file, workers running."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise BadInput("URL: not a postgresql:// URL. Quire transfers only to PostgreSQL.")
    session.refuse_remote(settings)
    db = open_database(settings.database, lease_seconds=settings.lease_seconds)
    if db.path is None:
        raise BadInput(
            "The database in use is PostgreSQL; only an embedded database can be transferred. "
            "Unset QUIRE_DATABASE_URL to transfer the one in the home. Nothing was changed."
        )
    if not db.path.exists():
        raise BadInput(
            f"home {settings.home}: there is no database to transfer. Name another folder with "
            "QUIRE_HOME, or start on PostgreSQL with QUIRE_DATABASE_URL and `quire migrate`."
        )
    try:
        with db.read() as conn:
            rows = liveness.alive(db, conn) if migrate.version(conn) else []
    finally:
        db.close()
    if alive := [f"{row.id} (pid {row.pid} on {row.host})" for row in rows]:
        raise Conflict(
            f"home {settings.home}: {format.count(len(alive), 'worker')} still running: "
            f"{', '.join(alive)}. Stop `quire up`, or drain them with `quire worker drain`, and "
            "run this again. Nothing was changed."
        )
    return db.path


def _print_database(name: str, files: str, moved: Transferred, report: doctor.Report) -> None:
    if moved.is_resumed:
        console.say("Continued an interrupted transfer.")
    total, tables = sum(moved.rows.values()), len(moved.rows)
    console.say(
        f"Transferred to {name}: {format.count(total, 'row')} in "
        f"{format.count(tables, 'table')}. Counts and checksums match."
    )
    if moved.not_copied:
        console.say(
            f"Not copied, because Quire did not create them: {', '.join(moved.not_copied)}. "
            "Copy these tables yourself before you start anything."
        )
    for line in database.lines(report):
        console.say(line)
    console.say(
        f"{files}, set QUIRE_DATABASE_URL to the new database, and start `quire up`. The old "
        "database is kept, but Quire no longer opens it."
    )


def _transfer_files(blobs: str, json: bool) -> None:
    with session.open_app() as opened:
        settings = opened.settings
        copied, alive = _copy_files(settings, opened.db, blobs, quiet=json)
    if json:
        console.as_json({**_as_json(blobs, copied), "workers": alive})
    else:
        _print_files(settings, blobs, copied, alive)
    if copied.lost:
        raise typer.Exit(1)


def _copy_files(settings: Settings, db: Database, url: str, *, quiet: bool) -> tuple[Copied, int]:
    """Copy the stored files to a bucket; also returns how many workers are alive."""
    if url.rstrip("/") == settings.blobs.rstrip("/"):
        raise Refused(f"--blobs: the files are already in {url}. Name another bucket or prefix.")
    source = open_blobs(settings.for_children)
    target = open_blobs({**settings.for_children, "blobs": url})
    assert isinstance(target, BlobBucket)  # noqa: S101  the URL was parsed
    if wrong := target.probe():
        raise Refused(f"{' '.join(wrong)} Nothing was copied.")
    with _progress(quiet=quiet) as tell:
        copied = blob_copy.copy(db, source, target, tell)
    with db.read() as conn:
        alive = len(liveness.alive(db, conn))
    return copied, alive


def _as_json(url: str, copied: Copied) -> dict[str, Any]:
    return {
        "copied_to": url,
        "copied": copied.copied,
        "bytes": copied.copied_bytes,
        "present": copied.present,
        "not_copied": copied.lost,
    }


def _print_files(settings: Settings, url: str, copied: Copied, alive: int) -> None:
    console.say(
        f"Copied to {url}: {format.count(copied.copied, 'file')}, "
        f"{format.size(copied.copied_bytes)}, checksums verified; "
        f"{copied.present:,} were already there."
    )
    for wrong in list(copied.lost.values())[:LISTED_FAILURES]:
        console.say(f"not copied: {format.one_line(wrong, 500)}")
    if copied.lost:
        console.say(
            f"{format.count(len(copied.lost), 'file')} could not be copied. See `quire doctor "
            "--deep`, then run this again."
        )
        return
    if alive:
        console.say(
            f"{format.count(alive, 'worker')} still running: files ingested from now on are "
            "not copied. Stop `quire up`, run this again for the rest, then switch."
        )
    console.say(
        f"Nothing was switched: {settings.blobs or settings.home / 'blobs'} is still in use. Set "
        f"QUIRE_BLOBS={url} everywhere, start `quire up`, and run `quire doctor`. After that you "
        "can delete the old files."
    )


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[ReportProgress]:
    """Yield a function that reports progress: bars on a terminal, lines elsewhere."""
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


def _lines() -> ReportProgress:
    due = 0.0

    def tell(step: str, done: int, total: int) -> None:
        nonlocal due
        if total and (done == total or time.monotonic() >= due):
            console.note(f"{step}: {done:,} of {total:,}")
            due = time.monotonic() + LINE_SECONDS

    return tell
