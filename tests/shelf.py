"""A folder of files and an app that takes them in, in this process and with a clock that stands.

`logical_index` says what is in an index without the numbers that differ from run to run.
"""

from __future__ import annotations

import json
import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from quire import testing
from quire.control import doctor, jobs
from quire.demo import samples
from quire.model.outcomes import Lease, Outcome, RunReport, decide
from quire.parse.pdf import reader as pdf
from quire.store.db.engine import Database
from quire.store.db.schema import queue as tables
from quire.store.db.schema.documents import (
    chunks,
    documents,
    generation_pages,
    generations,
    models,
    pages,
    slices,
    vectors,
)
from quire.store.queue import settle
from quire.testing import FakeClock, drain, scratch_app
from tests import blank

#: Settings that keep a test from loading a model or drawing pictures.
#: A few pages of text are split like many, or no test would see it.
FUSED = {"thumbnails": "false", "ocr": "never", "small_size": "0"}
PLAIN = {**FUSED, "embedder": "none"}


#: 32 bytes, as `quire secret key` prints them.
SECRET_KEY = "c2VjcmV0IG9mIHRlc3RzLCAzMiBieXRlcyBvZiBpdCE="


class Shelf:
    """A home, a folder beside it, and short names for what tests do to them."""

    def __init__(self, home: Path, folder: Path, url: str = "", **settings: Any) -> None:
        self.clock = FakeClock()
        self.folder = folder
        folder.mkdir(exist_ok=True)
        settings.setdefault("sqlite_synchronous", "normal")  # no test cuts the power
        if not url:
            blank.put(home)
        else:
            settings.setdefault("secret_key", SECRET_KEY)  # made by itself with SQLite only
        self.app = scratch_app(home, clock=self.clock, database_url=url, **settings)

    @property
    def db(self) -> Database:
        return self.app.db

    def put(self, name: str, content: bytes | str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def submit(self, *sources: str, settings: dict[str, Any] | None = None, **more: Any) -> int:
        """Ask for the folder, or for other sources."""
        payload = {"sources": list(sources) or [str(self.folder)], "settings": settings or PLAIN}
        return self.app.submit("ingest", **payload, **more)

    def drain(self, hours: int = 1) -> list[RunReport]:
        """Run what is due now, and what becomes due within some hours of backing off."""
        ended = drain(self.app)
        for _ in range(hours * 6):
            self.clock.advance(600)
            some = drain(self.app)
            ended += some
            if not some:
                break
        return ended

    def step(self, count: int = 1) -> list[RunReport]:
        """Run this many tasks and no more."""
        return drain(self.app, limit=count)

    def drain_with(self, crash: Callable[[Lease], str | None]) -> int:
        """Run what is due; a run for which `crash` names an outcome ends so. Counts these."""
        crashes = 0
        for _ in range(10_000):
            leases = testing._claim(self.app, "default")
            if not leases:
                self.clock.advance(600)
                leases = testing._claim(self.app, "default")
            if not leases:
                return crashes
            for lease in leases:
                if (outcome := crash(lease)) is None:
                    testing._run(self.app, lease)
                else:
                    self.end(lease, outcome)
                    crashes += 1
        raise AssertionError("it never ends")

    def end(self, lease: Lease, outcome: str, **more: Any) -> None:
        """End a run as a worker does whose child ended this way."""
        kind = self.app.registry.kinds[lease.kind]
        how = {"error": f"it was {outcome}", "duration": 1.5, "peak_rss": 7 << 20, **more}
        ended = RunReport(lease.task_id, lease.fence, Outcome(outcome), **how)
        settlement = decide(ended, lease, kind, 0.5, testing.WORKER, asked=False)
        self.db.write(lambda conn, now: settle.settle(conn, [settlement], now=now))

    def ingest(self, *sources: str, **wish: Any) -> int:
        job_id = self.submit(*sources, **wish)
        self.drain()
        return job_id

    def stop(self, job_id: int) -> None:
        jobs.stop(self.app.caller, [job_id])

    def resume(self, job_id: int) -> None:
        jobs.resume(self.app.caller, [job_id])

    def retry(self, job_id: int) -> None:
        jobs.retry(self.app.caller, [job_id])

    def cancel(self, job_id: int) -> None:
        jobs.cancel(self.app.caller, [job_id])

    def rows(self, table: str, **where: Any) -> Sequence[Any]:
        return rows_of(self.db, table, **where)

    def job(self, job_id: int) -> Any:
        [row] = self.rows("jobs", id=job_id)
        return row

    def listed(self, job_id: int) -> dict[str, Any]:
        """What the listing of a job counted, by reason, and what it names."""
        return {k: v for k, v in json.loads(self.job(job_id).result).items() if v}

    def tasks(self, kind: str, **where: Any) -> Sequence[Any]:
        return self.rows("tasks", kind=f"ingest.{kind}", **where)

    def document(self, name: str) -> Any:
        [row] = self.rows("documents", name=name)
        return row

    def generation(self, name: str, number: int | None = None) -> Any:
        document = self.document(name)
        wanted = document.generation if number is None else number
        [row] = self.rows("generations", document_id=document.id, generation=wanted)
        return row

    def ledger(self, name: str) -> dict[str, int]:
        """What the newest generation made and reused, without the time it saved."""
        counts = json.loads(self.generation(name).reused)
        return {k: v for k, v in counts.items() if v and k != "milliseconds_reused"}

    def leaves(self, name: str, number: int | None = None) -> Sequence[Any]:
        generation = self.generation(name, number)
        return self.rows(
            "leaves", document_id=generation.document_id, generation=generation.generation
        )

    def index(self) -> dict[str, Any]:
        return logical_index(self.db, self.folder)

    def texts(self, name: str) -> list[str]:
        """The text of each page that search sees."""
        [found] = [v for k, v in self.index().items() if k.endswith("/" + name)]
        return [page["text"] for page in found["pages"]]

    def is_found(self, words: str) -> bool:
        """Tell whether some live chunk holds the words."""
        shown = [page for document in self.index().values() for page in document["pages"]]
        return any(words in chunk for page in shown for chunk in page["chunks"])

    def assert_healthy(self) -> None:
        report = doctor.examine(self.db, sweep_interval=1e9)
        assert report.violations == [], report.violations

    def close(self) -> None:
        pdf.close()
        self.app.close()


def open_shelf(
    request: pytest.FixtureRequest, folder: Path, *, is_examined: bool = True, **settings: Any
) -> Iterator[Shelf]:
    """A shelf on the database that the fixture's parameter names."""
    url = request.getfixturevalue("pg_url") if request.param == "postgres" else ""
    shelf = Shelf(folder / "home", folder / "in", url, **settings)
    yield shelf
    if is_examined:
        shelf.assert_healthy()
    shelf.close()


#: Ends of names that a shell, an URL, a page or a path could take for something else.
ODD_NAMES = (
    "& 'ebb' <b>.txt", "naïve 文書 🐚.txt", "100%25 #1? a=b;c.txt", "$(x) `y` -rf.txt",
    "line\nbreak.txt", f"{'long ' * 40}.txt", "..txt", "no suffix",
)  # fmt: skip


def fill(folder: Path, count: int, seed: int = 7) -> None:
    """Write a mixed library: texts, tables, slides, books, scans, messages, copies, and files that
    are broken, protected or oddly named."""
    chance = random.Random(seed)
    words = ("tide", "harbour", "pilot", "ledger", "copper", "barley", "slate", "wool", "cider")

    def prose(length: int) -> str:
        return " ".join(chance.choice(words) for _ in range(length)) + "."

    def book(pages: int) -> bytes:
        return samples.pdf([samples.text_page([prose(60)]) for _ in range(pages)])

    makers: list[tuple[str, Callable[[], bytes]]] = [
        ("txt", lambda: prose(400).encode()),
        ("md", lambda: f"# {prose(4)}\n\n{prose(200)}".encode()),
        ("html", lambda: f"<h1>{prose(3)}</h1><p>{prose(300)}</p>".encode()),
        ("csv", lambda: "".join(f"{n},{prose(4)}\n" for n in range(30)).encode()),
        ("docx", lambda: samples.docx([prose(50), prose(80)])),
        ("pptx", lambda: samples.pptx([[prose(5), prose(30)] for _ in range(4)])),
        ("pdf", lambda: book(3)),
        ("pdf", lambda: book(chance.randint(10, 30))),
        ("eml", lambda: _letter(prose(80), prose(60))),
        ("pdf", lambda: book(2)[:300]),
        ("docx", lambda: b"PK\x03\x04 cut off"),
        ("xlsx", lambda: samples.xlsx({"Tides": [[n, prose(3)] for n in range(25)]})),
        ("pdf", lambda: samples.pdf([samples.scanned_page([prose(6)])])),
        ("pdf", lambda: samples.protected(book(2), "tide")),
        ("odd", lambda: prose(100).encode()),
    ]
    for number in range(count):
        suffix, make = makers[number % len(makers)]
        name = f"{number:04}.{suffix}"
        if suffix == "odd":
            name = f"{number:04}{ODD_NAMES[number // len(makers) % len(ODD_NAMES)]}"
        place = folder / f"part {number % 3}" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(make())
        if number % 10 == 0:
            (folder / f"copy of {place.name}").write_bytes(place.read_bytes())


def _letter(text: str, attached: str) -> bytes:
    made = EmailMessage()
    made["Subject"] = text[:20]
    made.set_content(text)
    made.add_attachment(attached.encode(), "text", "plain", filename="attached.txt")
    made.set_boundary("edge")
    return made.as_bytes()


def rows_of(db: Database, table: str, **where: Any) -> Sequence[Any]:
    columns = tables.metadata.tables[table]
    query = sa.select(columns).where(*(columns.c[k] == v for k, v in where.items()))
    with db.read() as conn:
        return conn.execute(query.order_by(*columns.primary_key)).all()


def logical_index(db: Database, folder: Path) -> dict[str, Any]:
    """All that search can see, by place: pages, their texts, chunks and vectors, and the states."""
    with db.read() as conn:
        found = conn.execute(sa.select(documents).order_by(documents.c.uri)).all()
        return {
            row.uri.replace(str(folder), ""): {
                "state": row.state,
                "error": row.error,
                "page_errors": row.page_errors,
                "pages": _pages(conn, row) if row.live_generation is not None else [],
            }
            for row in found
        }


def _pages(conn: sa.Connection, document: Any) -> list[dict[str, Any]]:
    [live] = conn.execute(
        sa.select(generations).where(
            generations.c.document_id == document.id,
            generations.c.generation == document.live_generation,
        )
    ).all()
    gp = generation_pages.c
    rows = conn.execute(
        sa.select(
            gp.number, gp.error, gp.page_id, pages.c.text, pages.c.words,
            pages.c.language, pages.c.via,
        )
        .join(pages, pages.c.id == gp.page_id, isouter=True)
        .where(gp.document_id == document.id, gp.generation == live.generation)
        .order_by(gp.number)
    ).all()  # fmt: skip
    return [
        {
            "number": row.number,
            "error": row.error and json.loads(row.error)["kind"],
            "text": row.text,
            "words": row.words,
            "via": row.via,
            "language": row.language,
            **_chunks(conn, row.page_id, live),
        }
        for row in rows
    ]


def _chunks(conn: sa.Connection, page_id: int | None, live: Any) -> dict[str, Any]:
    rows = conn.execute(
        sa.select(chunks.c.text, slices.c.start, slices.c.stop, vectors.c.vector, models.c.name)
        .join(slices, slices.c.chunk_id == chunks.c.id)
        .join(
            vectors,
            sa.and_(vectors.c.chunk_id == chunks.c.id, vectors.c.model_id == live.model_id),
            isouter=True,
        )
        .join(models, models.c.id == vectors.c.model_id, isouter=True)
        .where(slices.c.page_id == page_id, slices.c.cut_id == live.cut_id)
        .order_by(slices.c.ordinal)
    ).all()
    return {
        "chunks": [row.text for row in rows],
        "slices": [(row.start, row.stop) for row in rows],
        "vectors": [_floats(row.vector) for row in rows],
        "models": sorted({str(row.name) for row in rows}),
    }


def _floats(vector: bytes | str | None) -> bytes | None:
    """The same bytes from SQLite, which keeps them, and PostgreSQL, which prints numbers."""
    if vector is None or isinstance(vector, bytes):
        return vector
    return array("f", json.loads(vector)).tobytes()


def states(db: Database) -> Counter[str]:
    return Counter(row.state for row in rows_of(db, "documents"))
