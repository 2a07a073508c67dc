"""Kills the child with SIGKILL at a chosen stage of a document, once: the file's name says where.

`die-look.pdf` dies before the file is looked at; `die-swap-3.txt` before the fourth statement of
its swap. Loaded into the children of a worker only.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from quire.fetch.blobs.folder import BlobFolder
from quire.fetch.sources.folder import FolderSource
from quire.ingest import fetch
from quire.parse.boxed_reader import BoxedReader
from quire.store.db.schema.documents import documents as table
from quire.store.documents import admission, generation_pages, generations, pages
from quire.store.queue import fenced, settle
from quire.text import structured_chunk

HOME = Path(os.environ["QUIRE_HOME"])
_name = ""


def die(stage: str) -> None:
    """Die if the document at work asks for it here, and has not died yet."""
    if Path(_name).stem != f"die-{stage}" and not stage.startswith("list"):
        return
    mark = HOME / f"died-{stage}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def around(owner: Any, name: str, before: str = "", after: str = "") -> None:
    """Let a function of Quire die before its work, or after it."""
    real = getattr(owner, name)

    def wrapped(*arguments: Any, **more: Any) -> Any:
        if before:
            die(before)
        made = real(*arguments, **more)
        if after:
            die(after)
        return made

    setattr(owner, name, wrapped)


def remembering(owner: Any, name: str, pick: Callable[[Any], str]) -> None:
    """Note which document is at work."""
    real = getattr(owner, name)

    def wrapped(*arguments: Any, **more: Any) -> Any:
        global _name
        made = real(*arguments, **more)
        _name = pick(made)
        return made

    setattr(owner, name, wrapped)


_read, _swap, _ending, _admit = BoxedReader.read, generations.swap, fenced.ending, admission.admit
_listed = 0


def note_page(*arguments: Any, **more: Any) -> Any:
    """Die when the first page of a listing is stored, and the next time at the second one."""
    global _listed
    made = _admit(*arguments, **more)
    _listed += 1
    die(f"list-{_listed}")
    return made


def read(*arguments: Any, **more: Any) -> Iterator[Any]:
    for number, page in enumerate(_read(*arguments, **more)):
        if number:
            die("read")
        yield page


def swap(conn: sa.Connection, document_id: int, generation: int, **more: Any) -> Any:
    global _name
    _name = str(conn.scalar(sa.select(table.c.name).where(table.c.id == document_id)))
    count = 0

    def step(*_: Any) -> None:
        nonlocal count
        die(f"swap-{count}")
        count += 1

    sa.event.listen(conn, "before_cursor_execute", step)
    try:
        made = _swap(conn, document_id, generation, **more)
    finally:
        sa.event.remove(conn, "before_cursor_execute", step)
    die("swapped")
    return made


@contextlib.contextmanager
def ending(*arguments: Any, **more: Any) -> Iterator[Any]:
    with _ending(*arguments, **more) as transaction:
        yield transaction
        die("commit")
    die("committed")


setattr(BoxedReader, "read", read)  # noqa: B010 (mypy knows it as a method)
generations.swap, fenced.ending, admission.admit = swap, ending, note_page
# That of a small local file starts only after it was fetched.
remembering(generations, "peek", lambda build: build.name if build else "")
remembering(generations, "start", lambda build: build.name)
around(generations, "start", after="begin")
remembering(fetch, "load", lambda file: file.build.name)
around(FolderSource, "fetch", "fetch", "fetched")
around(BlobFolder, "put", "put", "kept")
around(BoxedReader, "detect", "sniff")
around(BoxedReader, "inspect", "look", "looked")
around(structured_chunk, "split", "cut")
around(pages, "embedded", "embed")
around(pages, "put", "store")
around(pages, "put_chunks", "chunks")
around(pages, "put_vectors", "vectors", "embedded")
around(generation_pages, "fill", "leaves", "filled")
around(generation_pages, "plan", "plan", "planned")
around(settle, "settle", "settle", "settled")
