"""Moves an embedded installation into PostgreSQL: copied by batches, compared, then switched over.

The source is held by this process alone, so that nothing changes it meanwhile. Each batch and the
mark that says how far its table is are one transaction of the target: a copy that was killed goes
on behind its last batch, and where the source has changed since, it begins anew. The source is
given up before the target is opened up, so that at no moment both can be used.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.errors import Damaged, Refused
from quire.model.states import TaskState
from quire.store.db import bulk, dialect, migrate, sqlite
from quire.store.db import transfer_markers as marks
from quire.store.db.engine import Database
from quire.store.db.schema.documents import chunks
from quire.store.db.schema.documents import vectors as vectors_table
from quire.store.db.schema.queue import is_state, meta, tasks
from quire.store.db.transfer_markers import Checkpoint, Origin
from quire.store.search import hnsw, vectors
from quire.store.transfer.rows import TABLES, Row, TableReader, add_hash

#: Rows and bytes, roughly, of one transaction.
BATCH_ROWS, BATCH_BYTES = 5_000, 8 << 20

#: Is told a step, how much of it is done, and of how much.
ReportProgress = Callable[[str, int, int], None]
#: Makes the words that PostgreSQL indexes of a text in a language.
Analyse = Callable[[str, str], str]


class Transferred(NamedTuple):
    """What a move did: rows by table, whether an earlier one was gone on with, what it left."""

    rows: dict[str, int]
    is_resumed: bool
    #: Tables that handlers made for themselves.
    left: list[str]


def transfer(
    path: Path, target: Database, *, name: str, analyse: Analyse, tell: ReportProgress
) -> Transferred:
    """Copy the database at `path` into the target, compare them, and give up the source.

    `name` is what the source says from then on of where it went: a URL without its password.
    """
    with sqlite.exclusive(path) as source:
        if lacking := migrate.count_missing(source):
            raise Refused(
                f"database {path}: its schema lacks {lacking} of this Quire's migrations. "
                "Nothing was changed; run `quire migrate` first."
            )
        identity = marks.source_identity(source, uuid.uuid4().hex)
    with sqlite.exclusive(path) as source:
        origin, is_resumed = _claimed(source, target, identity, name)
        shapes = [TableReader(table, origin.at) for table in TABLES]
        if is_resumed and (origin.is_corrupt or not _is_prefix(source, target, shapes)):
            origin, is_resumed = _begin_anew(target, origin), False
        for shape in shapes:
            _copy(source, target, shape, analyse, tell)
        rows = _compare(source, target, shapes, origin, tell)
        _complete(source, target, tell)
        left = sqlite.other_tables(source, [table.name for table in TABLES])
        marks.set_transferred_to(source, name)
    with target.begin() as conn:
        _open_up(conn, origin, target.now(conn).lease)
    return Transferred(rows, is_resumed, left)


def _claimed(
    source: sa.Connection, target: Database, identity: str, name: str
) -> tuple[Origin, bool]:
    """Make the target ours, or refuse it; tells whether a copy of this source is in it."""
    with target.read() as conn:
        found = _examined(conn, identity, name)
    moved_to = marks.transferred_to(source)
    if moved_to is not None and (found is None or found.is_done):
        raise Refused(
            f"database: it was moved to {moved_to} already. Set QUIRE_DATABASE_URL to that, with "
            "its password; nothing was changed."
        )
    if found is not None and found.is_done:
        raise _not_empty(name, "a finished copy of this database is in it")
    migrate.migrate(target, into_transfer=True)
    with target.begin() as conn:
        dialect.lock_schema(conn)
        found = _examined(conn, identity, name)
        if found is None:
            begun = Origin(identity, target.now(conn).wall)
            marks.set_origin(conn, begun)
            return begun, False
    return found, True


def _examined(conn: sa.Connection, identity: str, name: str) -> Origin | None:
    """Return the mark of a copy of this source, or None of an empty target; refuse any other."""
    inspector = sa.inspect(conn)
    present = {*inspector.get_table_names()}
    ours = [table for table in TABLES if table.name in present]
    if not ours:
        return None
    if not (_is_meta(inspector) and migrate.version(conn)):
        raise _not_empty(name, f"it has a table {ours[0].name} that is not Quire's")
    found = marks.origin(conn)
    if found is not None and found.source != identity:
        raise _not_empty(name, "another installation was copied into it")
    if found is None:
        for table in ours:
            if TableReader(table, 0.0).has_rows(conn):
                raise _not_empty(name, f"there are rows in {table.name}")
    return found


def _is_meta(inspector: sa.Inspector) -> bool:
    found = inspector.get_columns(meta.name) if inspector.has_table(meta.name) else []
    return {column["name"] for column in found} == {*meta.c.keys()}


def _not_empty(name: str, why: str) -> Refused:
    return Refused(
        f"target {name}: {why}. Nothing was changed; make an empty database and name that."
    )


def _is_prefix(source: sa.Connection, target: Database, shapes: Sequence[TableReader]) -> bool:
    """Tell whether what was copied is still what the source has up to the same keys."""
    with target.read() as conn:
        known = [(shape, marks.checkpoint(conn, shape.table)) for shape in shapes]
    return all(
        shape.up_to(source, mark.last)._replace(last=mark.last) == mark
        for shape, mark in known
        if mark.last is not None
    )


def _begin_anew(target: Database, origin: Origin) -> Origin:
    """Throw away what was copied."""
    begun = origin._replace(is_corrupt=False)
    with target.begin() as conn:
        dialect.truncate(conn, [table for table in TABLES if table is not meta])
        schema = meta.c.key.startswith("schema_", autoescape=True)
        conn.execute(sa.delete(meta).where(~schema))
        marks.set_origin(conn, begun)
    return begun


def _copy(
    source: sa.Connection,
    target: Database,
    shape: TableReader,
    analyse: Analyse,
    tell: ReportProgress,
) -> None:
    """Copy what is missing of a table."""
    with target.read() as conn:
        mark = marks.checkpoint(conn, shape.table)
    total = shape.count(source)
    tell(shape.table.name, mark.rows, total)
    for batch in _batches(shape.raw(source, after=mark.last)):
        rows = [shape.canonical(row) for row in batch]
        checksum = mark.checksum
        for row in rows:
            checksum = add_hash(checksum, row)
        mark = Checkpoint(shape.key(batch[-1]), mark.rows + len(rows), checksum)
        # Before the transaction: a session that is idle in one is soon ended.
        writable, words = _writable(shape, rows), _words(shape, rows, analyse)
        with target.begin() as conn:
            bulk.copy_rows(conn, shape.table, _names(shape), writable)
            dialect.index_texts(conn, words)
            marks.set_checkpoint(conn, shape.table, mark)
        tell(shape.table.name, mark.rows, total)


def _batches(rows: Iterator[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    batch: list[Sequence[Any]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _names(shape: TableReader) -> Sequence[str]:
    # The graphs are built when all vectors are there, which takes a part of the time.
    return (*shape.names, "is_fresh") if shape.table is vectors_table else shape.names


def _writable(shape: TableReader, rows: Sequence[Row]) -> Sequence[Row]:
    """Return rows as COPY takes them."""
    if shape.table is not vectors_table:
        return rows
    place = shape.names.index("vector")
    text = dialect.vector_text
    return [(*row[:place], text(row[place]), *row[place + 1 :], False) for row in rows]


def _words(shape: TableReader, rows: Sequence[Row], analyse: Analyse) -> list[tuple[int, str]]:
    """Return what the full-text index is given for chunks."""
    if shape.table is not chunks:
        return []
    number, text, language = (shape.names.index(name) for name in ("id", "text", "language"))
    return [(row[number], analyse(row[text], row[language])) for row in rows]


def _compare(
    source: sa.Connection,
    target: Database,
    shapes: Sequence[TableReader],
    origin: Origin,
    tell: ReportProgress,
) -> dict[str, int]:
    """Count and sum every table again in the target; returns the rows of each."""
    for number, shape in enumerate(shapes, start=1):
        with target.read() as conn:
            copied = marks.checkpoint(conn, shape.table)
            found = shape.total(conn)
        expected = shape.count(source), copied.checksum
        if (found.rows, found.checksum) != expected:
            with target.begin() as conn:
                marks.set_origin(conn, origin._replace(is_corrupt=True))
            raise Damaged(
                f"table {shape.table.name}: the copy is not what the source has "
                f"(expected {expected[0]:,} rows with checksum {expected[1]:032x}, got "
                f"{found.rows:,} with {found.checksum:032x}). The source is as it was and still "
                "in use; run the command again, which begins anew."
            )
        tell("compared tables", number, len(shapes))
    with target.read() as conn:
        return {shape.table.name: marks.checkpoint(conn, shape.table).rows for shape in shapes}


def _complete(source: sa.Connection, target: Database, tell: ReportProgress) -> None:
    """Make what no row carries: counters of ids, indexes of vectors, statistics."""
    numbered = [table for table in TABLES if _has_numbers(table)]
    with target.begin() as conn:
        for table in numbered:
            dialect.set_sequence(conn, table, sqlite.highest_id(source, table))
    with target.read() as conn:
        models = vectors.list_models(conn)
    for number, model in enumerate(models, start=1):
        with target.begin() as conn:
            dialect.lift_timeouts(conn, "0")
            hnsw.create_index(conn, model)
        tell("indexes of vectors", number, len(models))
    with target.begin() as conn:
        dialect.lift_timeouts(conn, "0")
        dialect.analyze(conn, TABLES)


def _has_numbers(table: sa.Table) -> bool:
    return "id" in table.c and isinstance(table.c.id.type, sa.Integer)


def _open_up(conn: sa.Connection, origin: Origin, lease: float) -> None:
    """Let the target be used: the next sweep takes back what was running."""
    running = is_state(tasks.c.state, TaskState.RUNNING)
    conn.execute(sa.update(tasks).where(running).values(expires_at=lease))
    marks.clear_checkpoints(conn)
    marks.set_origin(conn, origin._replace(is_done=True))
