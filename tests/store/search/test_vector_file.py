"""The file of vectors beside an SQLite database: used while it fits, else the database is read."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from quire.model.search import Model
from quire.store import open_database
from quire.store.db.engine import Database
from quire.store.documents import pages
from quire.store.search import vector_file, vectors
from quire.store.search.chunk_filter import ChunkFilter

TOY = Model(1, "toy", 4)
POINTS: dict[str, tuple[float, ...]] = {
    "east": (2, 0, 0, 0),
    "north": (0, 3, 0, 0),
    "up": (0, 0, 1, 0),
}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database with three vectors; the file is worth writing from the first on."""
    monkeypatch.setattr(vector_file, "MIN_VECTORS", 1)
    path = tmp_path / "quire.db"
    db = open_database(f"sqlite:///{path}")
    db.migrate()
    put(db, POINTS)
    db.close()
    return path


@pytest.fixture
def db(path: Path) -> Iterator[Database]:
    """As another process opens it: with nothing in memory."""
    db = open_database(f"sqlite:///{path}")
    yield db
    db.close()


def put(db: Database, points: dict[str, tuple[float, ...]]) -> dict[str, int]:
    with db.begin() as conn:
        model = vectors.register(conn, TOY.name, TOY.dimensions)
        texts = {name: (name, "en", 1) for name in points}
        ids = pages.put_chunks(conn, "default", texts, {name: name for name in points}, 1)
        packed = {name: struct.pack("4f", *point) for name, point in points.items()}
        pages.put_vectors(conn, "default", model, packed)
    return ids


def nearest(db: Database, *point: float, within: ChunkFilter | None = None) -> list[int]:
    with db.read() as conn:
        searcher = vectors.searcher(conn, "default", TOY, struct.pack("4f", *point))
        return [chunk for chunk, _ in searcher.nearest(2, within).ranked]


def vectors_read(db: Database) -> list[str]:
    """Note the statements that read vectors, but not those that only compare the last ones."""
    sent: list[str] = []

    def note(conn, cursor, statement, parameters, context, executemany):
        if "vectors.vector" in statement and "LIMIT" not in statement:
            sent.append(statement)

    sa.event.listen(db.engine, "before_cursor_execute", note)
    return sent


def reopened(db: Database) -> Database:
    db.close()
    return open_database(db.url)


def test_the_next_process_reads_no_vector_from_the_database(db: Database, path: Path):
    sent = vectors_read(db)
    assert nearest(db, 1, 0.5, 0, 0) == [1, 2]
    assert len(sent) == 1
    assert path.with_name("quire.db-vectors-1").stat().st_mode & 0o777 == 0o600
    other = reopened(db)
    sent = vectors_read(other)
    assert nearest(other, 1, 0.5, 0, 0) == [1, 2]
    assert sent == []
    other.close()


def test_what_was_added_and_deleted_since_is_noticed(db: Database):
    nearest(db, 1, 0, 0, 0)
    other = reopened(db)
    ids = put(other, {"south-east": (1, -1, 0, 0)})
    with other.begin() as conn:
        conn.exec_driver_sql("DELETE FROM vectors WHERE chunk_id = 1")
    sent = vectors_read(other)
    assert nearest(other, 1, -0.5, 0, 0)[0] == ids["south-east"]
    assert 1 not in nearest(other, 1, 0, 0, 0)
    assert all("vectors.rowid >" in each for each in sent)
    other.close()


def test_the_vectors_of_another_life_of_the_database_are_not_used(db: Database):
    """A backup was restored and went on: the same ids have other vectors."""
    nearest(db, 1, 0, 0, 0)
    other = reopened(db)
    with other.begin() as conn:
        turned = struct.pack("4f", 0, 0, 0, 1)
        conn.exec_driver_sql("UPDATE vectors SET vector = ? WHERE chunk_id = 3", (turned,))
    assert nearest(other, 0, 0, 0, 1)[0] == 3
    other.close()


@pytest.mark.parametrize("damage", [b"", b"{}", b"not JSON", b'{"seen": [3, 6, 3], "count": 3}'])
def test_a_damaged_file_is_ignored_and_replaced(db: Database, path: Path, damage: bytes):
    nearest(db, 1, 0, 0, 0)
    file = path.with_name("quire.db-vectors-1")
    good = file.read_bytes()
    for content in (damage, good[:-1]):
        file.write_bytes(content)
        other = reopened(db)
        assert nearest(other, 1, 0.5, 0, 0) == [1, 2]
        assert file.read_bytes() == good
        other.close()


def test_a_folder_that_cannot_be_written_to_costs_only_the_file(
    db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert nearest(db, 1, 0.5, 0, 0) == [1, 2]
    assert [each.name for each in path.parent.glob("*vectors*")] == []


def test_a_search_in_a_few_chunks_reads_only_their_vectors(db: Database, path: Path):
    sent = vectors_read(db)
    assert nearest(db, 1, 0.5, 0, 0, within=ChunkFilter.from_array("[2, 3]")) == [2, 3]
    [read] = sent
    assert "json_each" in read
    assert [each.name for each in path.parent.glob("*vectors*")] == []
    nearest(db, 1, 0, 0, 0)
    sent.clear()
    assert nearest(db, 1, 0.5, 0, 0, within=ChunkFilter.from_array("[2, 3]")) == [2, 3]
    assert sent == []  # it has them all
