"""A file of a model's vectors beside an SQLite database, which processes map into memory.

Reading all vectors from the database takes most of the time of a first search. The file is a copy:
it may be missing, old or deleted at any time. A process compares it with the database before it
uses it, and writes a new one when too many vectors are missing from it.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from quire.model.search import Model
from quire.store.db.schema.documents import vectors

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: From this number of vectors on, a file is worth its disk space.
MIN_VECTORS = 20_000
_HEADER_BYTES = 4_096
#: The last rows that must be equal in the database: those of a restored backup are not.
_COMPARED_ROWS = 8
rowid: sa.ColumnElement[int] = sa.literal_column("vectors.rowid", sa.BigInteger)


class StoredVectors(NamedTuple):
    """The unit vectors of one tenant's chunks, and the state of the database they are from."""

    tenant: str
    ids: "npt.NDArray[np.int64]"
    matrix: "npt.NDArray[np.float32]"
    #: Number of vectors, sum of their chunks' ids, last row.
    seen: tuple[int, int, int]


def load(conn: sa.Connection, model: Model) -> StoredVectors | None:
    """Map the file of a model, or return None if it does not fit the database."""
    import numpy as np

    path = _path(conn, model)
    try:
        with path.open("rb") as file:
            header = json.loads(file.read(_HEADER_BYTES))
            size = os.fstat(file.fileno()).st_size
        seen, count = tuple(header["seen"]), header["count"]
        expected = _HEADER_BYTES + count * (4 * model.dimensions + 8)
        if size != expected or header["tail"] != _tail(conn, model, seen[2]):
            return None
        shape = count, model.dimensions
        matrix = np.memmap(path, np.float32, "r", _HEADER_BYTES, shape)
        ids = np.memmap(path, np.int64, "r", _HEADER_BYTES + matrix.nbytes, (count,))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return StoredVectors(header["tenant"], np.asarray(ids), np.asarray(matrix), seen)


def save(conn: sa.Connection, model: Model, stored: StoredVectors) -> None:
    """Replace the file of a model; a full or read-only disk leaves it as it is."""
    header = {
        "tenant": stored.tenant,
        "count": len(stored.ids),
        "seen": stored.seen,
        "tail": _tail(conn, model, stored.seen[2]),
    }
    path = _path(conn, model)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.touch(0o600)
        with part.open("wb") as file:
            file.write(json.dumps(header).encode().ljust(_HEADER_BYTES))
            file.flush()
            stored.matrix.tofile(file)
            stored.ids.tofile(file)
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()


def _path(conn: sa.Connection, model: Model) -> Path:
    return Path(f"{conn.engine.url.database}-vectors-{model.id}")


def _tail(conn: sa.Connection, model: Model, last: int) -> str:
    """Return a hash of the last rows up to one; the plus makes SQLite walk along the rowid."""
    v = vectors.c
    mine = sa.literal_column("+vectors.model_id") == model.id
    query = sa.select(rowid, v.chunk_id, v.vector).where(mine, rowid <= last)
    rows = conn.execute(query.order_by(rowid.desc()).limit(_COMPARED_ROWS)).all()
    text = repr((model.name, [tuple(row) for row in rows]))
    return hashlib.sha256(text.encode()).hexdigest()
