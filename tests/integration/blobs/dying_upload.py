"""Kills the child with SIGKILL around an upload into a bucket, once for each stage.

`die-before.pdf` dies before its bytes go, `die-middle.pdf` when a part of them has gone, and
`die-after.pdf` when all are there and nothing is committed. Loaded into the children of a worker.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quire.fetch import object_store
from quire.fetch.object_store import Bucket, load_obstore
from quire.store.documents import generations

HOME = Path(os.environ["QUIRE_HOME"])
_name = ""
_begin, _put = generations.start, Bucket.put


def die(stage: str) -> None:
    """Die if the document at work asks for it here, and has not died yet."""
    mark = HOME / f"died-{stage}"
    if Path(_name).stem == f"die-{stage}" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def begin(*arguments: Any, **more: Any) -> Any:
    global _name
    begun = _begin(*arguments, **more)
    _name = begun.name
    return begun


def halves(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield file.read(6 << 20)
        die("middle")
        yield file.read()


def put(self: Bucket, key: str, path: Path) -> None:
    die("before")
    if path.stat().st_size > object_store.CHUNK_BYTES:
        load_obstore().put(
            self._store, self.key(key), halves(path), chunk_size=5 << 20, max_concurrency=1
        )
    _put(self, key, path)
    die("after")


generations.start, Bucket.put = begin, put  # type: ignore[method-assign]
