"""pgvector's binary wire format: formatting vectors as text takes longer than the insert."""

import struct
import sys
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

_ARRAY = struct.Struct(">iiIii")
_VECTOR = struct.Struct(">iHH")


class VectorList:
    """Vectors as one parameter in pgvector's binary format."""

    def __init__(self, wire: bytes) -> None:
        self.wire = wire


def vector_list(conn: sa.Connection, vectors: Sequence[bytes]) -> VectorList:
    """Encode float32 vectors as `vector[]`."""
    known = conn.connection.info
    if "vector_type" not in known:
        conn.connection.driver_connection.adapters.register_dumper(VectorList, _dumper())  # type: ignore[union-attr]
        query = "SELECT CAST(CAST('vector' AS regtype) AS oid)"
        known["vector_type"] = conn.exec_driver_sql(query).scalar_one()
    parts = [_ARRAY.pack(1, 0, known["vector_type"], len(vectors), 1)]
    for each in vectors:
        parts += (_VECTOR.pack(4 + len(each), len(each) // 4, 0), _numbers(each))
    return VectorList(b"".join(parts))


def _numbers(vector: bytes) -> bytes:
    if sys.byteorder == "big":
        return vector
    numbers = array("f", vector)
    numbers.byteswap()
    return numbers.tobytes()


@cache
def _dumper() -> Any:
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class Dumped(Dumper):
        """Passes the encoded bytes on; the statement gives their type."""

        format = Format.BINARY

        def dump(self, obj: Any) -> Any:
            return obj.wire

    return Dumped
