"""`quire migrate --blobs`: copies the files of an installation into a bucket, with progress."""

from typing import TYPE_CHECKING, Any

import typer

from quire.cli import console, formatting, transfer
from quire.errors import Refused

if TYPE_CHECKING:
    from quire.control.blob_copy import Copied
    from quire.settings import Settings
    from quire.store.db.engine import Database

#: Files that could not be copied which are named.
FEW = 5


def copy(to: str, json: bool) -> None:
    """Copy, and say what to do next; exits with 1 where a file could not be copied."""
    from quire.cli import session

    with session.reading() as opened:
        settings = opened.settings
        copied, alive = run(settings, opened.db, to, quiet=json)
    if json:
        console.as_json({**as_json(to, copied), "workers": alive})
    else:
        say(settings, to, copied, alive)
    if copied.lost:
        raise typer.Exit(1)


def run(settings: "Settings", db: "Database", to: str, *, quiet: bool) -> tuple["Copied", int]:
    """Copy the files of these settings; returns also how many workers are at work."""
    from quire.control import blob_copy
    from quire.fetch.blobs.bucket import BlobBucket
    from quire.ingest import resources
    from quire.runtime.worker import live_workers

    if to.rstrip("/") == settings.blobs.rstrip("/"):
        raise Refused(f"--blobs: {to} is where the files are. Name another bucket or prefix.")
    source = resources.blobs_of(settings.for_children)
    target = resources.blobs_of({**settings.for_children, "blobs": to})
    assert isinstance(target, BlobBucket)  # noqa: S101  the URL was parsed
    if wrong := target.probe():
        raise Refused(f"{' '.join(wrong)} Nothing was copied.")
    with transfer.told(quiet=quiet) as tell:
        copied = blob_copy.copy(db, source, target, tell)
    with db.read() as conn:
        alive = sum(bool(row["alive"]) for row in live_workers.listed(db, conn))
    return copied, alive


def as_json(to: str, copied: "Copied") -> dict[str, Any]:
    """Write what was done for programs."""
    return {
        "copied_to": to,
        "copied": copied.copied,
        "bytes": copied.copied_bytes,
        "present": copied.present,
        "not_copied": copied.lost,
    }


def say(settings: "Settings", to: str, copied: "Copied", alive: int) -> None:
    """Write what was done, and what is to be done, for people."""
    console.say(
        f"copied to {to}: {formatting.count(copied.copied, 'file')}, "
        f"{formatting.size(copied.copied_bytes)}, each proved; "
        f"{copied.present:,} were there already."
    )
    for wrong in list(copied.lost.values())[:FEW]:
        console.say(f"not copied: {formatting.one_line(wrong, 500)}")
    if copied.lost:
        console.say(
            f"{formatting.count(len(copied.lost), 'file')} could not be copied. See `quire doctor "
            "--deep`, and run this again."
        )
        return
    if alive:
        console.say(
            f"{formatting.count(alive, 'worker')} at work: what comes in from now on is not there. "
            "Stop `quire up`, run this again for the rest, and then switch."
        )
    console.say(
        f"Nothing was switched: {settings.blobs or settings.home / 'blobs'} is still in use. Set "
        f"QUIRE_BLOBS={to} everywhere, start `quire up`, and run `quire doctor`. The old files "
        "may be deleted after that."
    )
