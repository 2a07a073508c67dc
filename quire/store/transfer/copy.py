"""Transfers an embedded database to PostgreSQL: copy in batches, compare, switch over.

This process has exclusive access to the source, so it does not change meanwhile. Each batch and
the checkpoint of its table are one transaction in the target: an interrupted transfer resumes
after its last batch, or starts over if the source has changed. The source is disabled before the
target is enabled, so that the two are never in use at the same time.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from quire.errors import Damaged, Refused
from quire.model.pipeline import searchable
from quire.model.states import TaskState
from quire.store.db import bulk, dialect, migrate, sqlite
from quire.store.db import transfer_markers as markers
from quire.store.db.engine import Database
from quire.store.db.schema.documents import chunks
from quire.store.db.schema.documents import vectors as vectors_table
from quire.store.db.schema.queue import is_state, meta, tasks
from quire.store.db.transfer_markers import Checkpoint, Origin
from quire.store.search import hnsw, vectors
from quire.store.transfer.rows import TABLES, Row, TableReader, add_hash

#: Approximate maximum rows and bytes of one transaction.
BATCH_ROWS, BATCH_BYTES = 5_000, 8 << 20

#: Called with a step, the amount done and the total.
ReportProgress = Callable[[str, int, int], None]
#: Returns the words that PostgreSQL indexes for a text in a language.
Analyse = Callable[[str, str], str]


class Transferred(NamedTuple):
    """Result of a transfer: rows by table, whether it resumed an earlier one, skipped tables."""

    rows: dict[str, int]
    is_resumed: bool
    #: Tables created by handlers, not by Quire.
    not_copied: list[str]


def transfer(
    path: Path, target: Database, *, name: str, analyse: Analyse, report: ReportProgress
) -> Transferred:
    """Copy the database at `path` to the target, compare them, and disable the source.

    The source then refers to the target by `name`: a URL without its password.
    """
    with sqlite.exclusive(path) as source:
        if missing := migrate.count_missing(source):
            raise Refused(
                f"database {path}: {missing} migrations are missing. Nothing was changed; run "
                "`quire migrate` first."
            )
        if (identity := markers.read(source, markers.IDENTITY)) is None:
            identity = uuid.uuid4().hex
            markers.write(source, markers.IDENTITY, identity)
    target.close()
    sa.event.listen(target.engine, "connect", markers.pass_guard)
    with sqlite.exclusive(path) as source:
        origin, is_resumed = _claim_target(source, target, identity, name)
        readers = [TableReader(table, origin.at) for table in TABLES]
        if is_resumed and (origin.is_corrupt or not _is_prefix(source, target, readers)):
            origin, is_resumed = _start_over(target, origin), False
        for reader in readers:
            _copy(source, target, reader, analyse, report)
        rows = _compare(source, target, readers, origin, report)
        _finish_target(source, target, report)
        not_copied = sqlite.other_tables(source, [table.name for table in TABLES])
        if markers.transferred_to(source) is None:
            markers.give_up_source(source, name, TABLES)
    with target.begin() as conn:
        _open_target(conn, origin, target.now(conn).lease)
    return Transferred(rows, is_resumed, not_copied)


def _claim_target(
    source: sa.Connection, target: Database, identity: str, name: str
) -> tuple[Origin, bool]:
    """Claim the target or refuse it; returns whether it contains a copy of this source."""
    with target.read() as conn:
        found = _inspect_target(conn, identity, name)
    transferred_to = markers.transferred_to(source)
    if transferred_to is not None and (found is None or found.is_done):
        raise Refused(
            f"database: already transferred to {transferred_to}. Set QUIRE_DATABASE_URL to it, "
            "with its password. Nothing was changed."
        )
    if found is not None and found.is_done:
        raise _not_empty(name, "it contains a finished copy of this database")
    migrate.migrate(target, into_transfer=True)
    with target.begin() as conn:
        dialect.lock_schema(conn)
        markers.close_target(conn, TABLES)
        found = _inspect_target(conn, identity, name)
        if found is None:
            begun = Origin(identity, target.now(conn).wall)
            markers.write(conn, markers.FROM, begun)
            return begun, False
    return found, True


def _inspect_target(conn: sa.Connection, identity: str, name: str) -> Origin | None:
    """Return the marker of a copy of this source, or None for an empty target; refuse others."""
    inspector = sa.inspect(conn)
    present = {*inspector.get_table_names()}
    ours = [table for table in TABLES if table.name in present]
    if not ours:
        return None
    columns = inspector.get_columns(meta.name) if meta.name in present else []
    is_meta = {column["name"] for column in columns} == {*meta.c.keys()}
    if not (is_meta and migrate.version(conn)):
        raise _not_empty(name, f"its table {ours[0].name} is not Quire's")
    found = markers.origin(conn)
    if found is not None and found.source != identity:
        raise _not_empty(name, "it contains a copy of another database")
    if found is None:
        for table in ours:
            if TableReader(table, 0.0).count(conn):
                raise _not_empty(name, f"its table {table.name} has rows")
    return found


def _not_empty(name: str, why: str) -> Refused:
    return Refused(
        f"target {name}: {why}. Nothing was changed; create an empty database and use that."
    )


def _is_prefix(source: sa.Connection, target: Database, readers: Sequence[TableReader]) -> bool:
    """Tell whether the copied rows still equal the source's rows up to the same keys."""
    with target.read() as conn:
        known = [(reader, markers.checkpoint(conn, reader.table)) for reader in readers]
    return all(
        reader.up_to(source, checkpoint.last)._replace(last=checkpoint.last) == checkpoint
        for reader, checkpoint in known
        if checkpoint.last is not None
    )


def _start_over(target: Database, origin: Origin) -> Origin:
    begun = origin._replace(is_corrupt=False)
    with target.begin() as conn:
        dialect.truncate(conn, [table for table in TABLES if table is not meta])
        schema = meta.c.key.startswith("schema_", autoescape=True)
        conn.execute(sa.delete(meta).where(~schema))
        markers.write(conn, markers.FROM, begun)
    return begun


def _copy(
    source: sa.Connection,
    target: Database,
    reader: TableReader,
    analyse: Analyse,
    report: ReportProgress,
) -> None:
    with target.read() as conn:
        checkpoint = markers.checkpoint(conn, reader.table)
    total = reader.count(source)
    report(reader.table.name, checkpoint.rows, total)
    for batch in _batches(reader.raw(source, after=checkpoint.last)):
        rows = [reader.canonical(row) for row in batch]
        checksum = checkpoint.checksum
        for row in rows:
            checksum = add_hash(checksum, row)
        checkpoint = Checkpoint(reader.key(batch[-1]), checkpoint.rows + len(rows), checksum)
        # Outside the transaction: the server ends sessions that idle in one.
        writable, words = _writable(reader, rows), _words(reader, rows, analyse)
        with target.begin() as conn:
            bulk.copy_rows(conn, reader.table, *writable)
            dialect.index_texts(conn, "", words)  # a column there, whatever the tenant
            markers.write(conn, markers.TABLE + reader.table.name, checkpoint)
        report(reader.table.name, checkpoint.rows, total)


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


def _writable(reader: TableReader, rows: Sequence[Row]) -> tuple[Sequence[str], Sequence[Row]]:
    """Return the columns and rows that COPY writes."""
    if reader.table is not vectors_table:
        return reader.names, rows
    at = reader.names.index("vector")
    text = dialect.vector_text
    # Not fresh: HNSW indexes are built after all vectors are copied, which is faster.
    written = [(*row[:at], text(row[at]), *row[at + 1 :], False) for row in rows]
    return (*reader.names, "is_fresh"), written


def _words(reader: TableReader, rows: Sequence[Row], analyse: Analyse) -> list[tuple[int, str]]:
    """Return the words of chunks for the full-text index."""
    if reader.table is not chunks:
        return []
    names = ("id", "text", "context", "language")
    number, text, context, language = map(reader.names.index, names)
    return [
        (row[number], analyse(searchable(row[text], row[context]), row[language])) for row in rows
    ]


def _compare(
    source: sa.Connection,
    target: Database,
    readers: Sequence[TableReader],
    origin: Origin,
    report: ReportProgress,
) -> dict[str, int]:
    """Compare counts and checksums of all tables; returns the rows of each."""
    for number, reader in enumerate(readers, start=1):
        with target.read() as conn:
            copied = markers.checkpoint(conn, reader.table)
            found = reader.total(conn)
        expected = reader.count(source), copied.checksum
        if (found.rows, found.checksum) != expected:
            with target.begin() as conn:
                markers.write(conn, markers.FROM, origin._replace(is_corrupt=True))
            raise Damaged(
                f"table {reader.table.name}: the copy differs from the source "
                f"(expected {expected[0]:,} rows with checksum {expected[1]:032x}, got "
                f"{found.rows:,} with {found.checksum:032x}). The source is unchanged and still "
                "in use; run the command again to start over."
            )
        report("compare tables", number, len(readers))
    with target.read() as conn:
        return {
            reader.table.name: markers.checkpoint(conn, reader.table).rows for reader in readers
        }


def _finish_target(source: sa.Connection, target: Database, report: ReportProgress) -> None:
    """Set id sequences, build HNSW indexes, update statistics."""
    with target.begin() as conn:
        for table in TABLES:
            if "id" in table.c and isinstance(table.c.id.type, sa.Integer):
                dialect.set_sequence(conn, table, sqlite.highest_id(source, table))
    with target.read() as conn:
        models = vectors.list_models(conn)
    for number, model in enumerate(models, start=1):
        with target.begin() as conn:
            dialect.lift_timeouts(conn, "0")
            hnsw.create_index(conn, model)
        report("build vector indexes", number, len(models))
    with target.begin() as conn:
        dialect.lift_timeouts(conn, "0")
        dialect.analyze(conn, TABLES)


def _open_target(conn: sa.Connection, origin: Origin, lease: float) -> None:
    """Enable the target: the next sweep reclaims the running tasks."""
    markers.open_target(conn)
    running = is_state(tasks.c.state, TaskState.RUNNING)
    conn.execute(sa.update(tasks).where(running).values(expires_at=lease))
    checkpoints = meta.c.key.startswith(markers.TABLE, autoescape=True)
    conn.execute(sa.delete(meta).where(checkpoints))
    markers.write(conn, markers.FROM, origin._replace(is_done=True))
