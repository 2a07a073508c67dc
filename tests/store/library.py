"""A database with documents in every state: filled once, copied for each test that spoils it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quire.store import open_database
from quire.store.db.engine import Database
from quire.store.documents import gc, generations
from tests import blank
from tests.copies import Copies
from tests.store.shelf import Shelf
from tests.store.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR = 3600.0


class Library(NamedTuple):
    """A database with documents in every state, and the folder of their blobs."""

    stage: Stage
    shelf: Shelf

    @property
    def db(self) -> Database:
        return self.stage.db


class Original(NamedTuple):
    """What copies are made of: a folder of blobs, with the database in it or on a server."""

    folder: Path
    copies: Copies | None

    @contextlib.contextmanager
    def copied(self, folder: Path) -> Iterator[Library]:
        """Give a copy of one's own, until the end of the block."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        name = self.copies and self.copies.take()
        url = f"sqlite:///{folder / 'quire.db'}"
        db = open_database(self.copies.server.url_of(name) if self.copies and name else url)
        stage = Stage(db)
        stage.clock.advance(HOUR)
        yield Library(stage, Shelf(stage, folder / "blobs"))
        db.close()
        if self.copies and name:
            self.copies.drop(name)


@contextlib.contextmanager
def filled(folder: Path, blanks: Copies | None) -> Iterator[Original]:
    """Fill a library in one of the blank databases of PostgreSQL, or else in the folder."""
    if blanks is None:
        furnish(f"sqlite:///{blank.put(folder)}", folder)
        yield Original(folder, None)
        return
    name = blanks.take()
    furnish(blanks.server.url_of(name), folder)
    with Copies(blanks.server, name) as copies:
        yield Original(folder, copies)
    blanks.drop(name)


def furnish(url: str, folder: Path) -> None:
    """Bring documents into every state."""
    db = open_database(url)
    stage = Stage(db)
    shelf = Shelf(stage, folder / "blobs")
    shelf.file("retired.txt", "gone")
    shelf.file("retired.txt", "here\nnow")
    stage.clock.advance(HOUR)
    with db.begin() as conn:
        assert gc.delete_old_page_lists(conn, before=stage.now().wall) == 1
    live = shelf.file("live.txt", "one\ntwo\nthree", "four", corpus="books")
    shelf.file("spoilt.txt", "five", "lost", errors={2: '{"error": "broken"}'})
    shelf.file("words.txt", "no vectors", model=None)
    shelf.file("replaced.txt", "six")
    shelf.file("replaced.txt", "six", "seven")
    shelf.queue("live.txt#1/inside.txt", parent_id=live.document_id)
    failed = shelf.queue("failed.txt")
    shelf.begin(failed)
    shelf.end(failed, "fail", "permanent")
    building = shelf.queue("building.txt")
    shelf.begin(building)
    shelf.fill(building, ["eight"])
    picture = shelf.put_content(b"picture")
    with db.begin() as conn:
        generations.set_thumbnail(conn, live.document_id, picture)
    Shelf(stage, folder / "blobs", tenant="other").file("other.txt", "one", corpus="books")
    # A database with a session cannot be copied, nor a file with a log.
    db.close()
