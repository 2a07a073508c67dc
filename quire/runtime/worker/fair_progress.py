"""Writes how far the fair order has got, in transactions of their own: no claim waits for it."""

import contextlib
import time
from collections.abc import Sequence

from quire.errors import DatabaseUnavailable
from quire.model.records import Lease
from quire.store.db.engine import Database
from quire.store.queue import claim

EVERY = 0.3


class Bands:
    """What was claimed since the order was last written."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._claimed: list[Lease] = []
        self._at = 0.0

    def add(self, leases: Sequence[Lease]) -> None:
        """Remember what was claimed."""
        self._claimed += leases

    def advance(self) -> None:
        """Write what is remembered, some times a second; what is lost costs a little fairness."""
        now = time.monotonic()
        if not self._claimed or now < self._at:
            return
        claimed, self._claimed = self._claimed, []
        self._at = now + EVERY
        with contextlib.suppress(DatabaseUnavailable):
            self._db.write(lambda conn, _: claim.advance(conn, claimed))
