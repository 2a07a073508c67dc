"""A database with documents in every state: filled once, copied for each test that spoils it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quire.store import account, collect
from quire.store.engine import Database
from tests import blank, postgres, statements
from tests.store.shelf import Shelf
from tests.store.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

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
    server: postgres.Server
    admin: psycopg.Connection | None
    name: str

    @contextlib.contextmanager
    def copied(self, folder: Path) -> Iterator[Library]:
        """Give a copy of one's own, until the end of the block."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        with contextlib.ExitStack() as stack:
            url = f"sqlite:///{folder / 'quire.db'}"
            if self.admin is not None:
                name = stack.enter_context(self.server.copy(self.admin, self.name))
                url = self.server.url_of(name)
            db = Database.open(url)
            stack.callback(db.close)
            statements.share(db.engine)
            stage = Stage(db)
            stage.clock.advance(HOUR)
            yield Library(stage, Shelf(stage, folder / "blobs"))


@contextlib.contextmanager
def filled(folder: Path, run_folder: Path, admin: psycopg.Connection | None) -> Iterator[Original]:
    """Fill a library, on the run's server of PostgreSQL if `admin` is connected to it."""
    server = postgres.Server(run_folder / "pg")
    with contextlib.ExitStack() as stack:
        name = ""
        if admin is None:
            url = f"sqlite:///{blank.put(folder)}"
        else:
            name = stack.enter_context(server.copy(admin, postgres.TEMPLATE))
            url = server.url_of(name)
        db = Database.open(url)
        furnish(db, folder)
        # A database with a session cannot be a template, nor a file with a log be copied.
        db.close()
        yield Original(folder, server, admin, name)


def furnish(db: Database, folder: Path) -> None:
    """Bring documents into every state."""
    stage = Stage(db)
    shelf = Shelf(stage, folder / "blobs")
    shelf.file("retired.txt", "gone")
    shelf.file("retired.txt", "here\nnow")
    stage.clock.advance(HOUR)
    with db.begin() as conn:
        assert collect.retire(conn, before=stage.now().wall) == 1
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
        account.set_thumbnail(conn, live.document_id, picture)
    Shelf(stage, folder / "blobs", tenant="other").file("other.txt", "one", corpus="books")
