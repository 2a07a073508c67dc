"""Broadcast events to open streams (SSE), from one reader per process.

It polls while there are listeners, encodes each event once and hands one chunk per round to every
stream, so a hundred streams cost little more than one. A stream that falls behind is closed.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple

from quire import log
from quire.errors import DatabaseUnavailable, QuireError, TooMany
from quire.store.db.engine import Database
from quire.store.queue import events, tail
from quire.store.queue.tail import Activity, Cursor, StreamedEvent

POLL_SECONDS = 0.25
#: Seconds between retries while the database is unavailable.
RETRY_SECONDS = 1.0
#: Chunks that may wait for one stream, at one per round.
QUEUE_LENGTH = 64
RETRY_AFTER = 5.0
#: Jobs were submitted or tasks claimed. Not stored, so it has no cursor.
CHANGED = "queue.changed"


class EventFilter(NamedTuple):
    """Which events a stream gets."""

    tenant: str
    job_id: int | None = None
    names: frozenset[str] = frozenset()

    def fits(self, tenant: str, job_id: int | None, name: str) -> bool:
        """Tell whether an event matches."""
        if tenant != self.tenant or self.job_id not in (None, job_id):
            return False
        return not self.names or any(
            name == each or name.startswith(f"{each}.") for each in self.names
        )


class Listener:
    """One open stream: its position and the chunks that wait for it."""

    def __init__(self, wanted: EventFilter, user: str) -> None:
        self.wanted = wanted
        self.user = user
        #: Everything up to here was sent; set when it joins.
        self.at = Cursor(0, 0)
        self.joined_at = Cursor(0, 0)
        self.ended: str | None = None
        self._pieces: deque[tuple[Cursor, bytes]] = deque()
        self._has_news = asyncio.Event()

    def put(self, cursor: Cursor, piece: bytes) -> None:
        """Queue a chunk, or end the stream if it is too slow."""
        if len(self._pieces) >= QUEUE_LENGTH:
            self.end("The stream was read too slowly. Reconnect with the cursor.")
            return
        self._pieces.append((cursor, piece))
        self._has_news.set()

    def end(self, why: str) -> None:
        """End the stream after the chunks that already wait."""
        self.ended = self.ended or why
        self._has_news.set()

    async def take(self, within: float) -> bytes:
        """Return the waiting chunks, or b"" on timeout and at the end."""
        if not self._pieces and self.ended is None:
            self._has_news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_news.wait(), max(within, 0.0))
        pieces = []
        while self._pieces:
            cursor, piece = self._pieces.popleft()
            self.at = max(self.at, cursor)
            pieces.append(piece)
        return b"".join(pieces)


class EventBroadcaster:
    """The reader and its streams; used on the event loop only."""

    def __init__(self, db: Database, most: int) -> None:
        self._db = db
        self._most = most
        self._listeners: set[Listener] = set()
        self._open: list[tuple[str, str]] = []
        self._at = Cursor(0, 0)
        self._pulses: dict[str, Activity] = {}
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False
        self._error: QuireError | None = None

    @property
    def count(self) -> int:
        """The number of open streams."""
        return len(self._open)

    async def join(self, user: str, wanted: EventFilter, cursor: Cursor | None) -> Listener:
        """Open a stream after a cursor, or from now on; `leave` must follow."""
        self._admit(wanted.tenant, user)
        listener = Listener(wanted, user)
        try:
            async with self._starting:
                if self._reading is None or self._reading.done():
                    self._at = await asyncio.to_thread(self._head)
                    self._pulses, self._error = {}, None
                    self._reading = asyncio.create_task(self._read_on())
                if cursor is not None:
                    cursor = await asyncio.to_thread(self._local, cursor)
                if self._error is not None:
                    raise DatabaseUnavailable(str(self._error))
                # No await from here on, so no event can be missed in between.
                listener.joined_at = self._at
                listener.at = cursor or self._at
                self._listeners.add(listener)
        except BaseException:
            self._open.remove((wanted.tenant, user))
            raise
        return listener

    def leave(self, listener: Listener) -> None:
        """Remove a closed stream."""
        self._listeners.discard(listener)
        self._open.remove((listener.wanted.tenant, listener.user))

    async def missed(self, listener: Listener) -> AsyncIterator[bytes]:
        """Yield the events between the stream's cursor and the moment it joined."""
        until = listener.joined_at
        while listener.at < until:
            found = await asyncio.to_thread(self._between, listener.wanted, listener.at, until)
            if not found:
                break
            wanted = listener.wanted
            piece = b"".join(_line(e) for e in found if wanted.fits(e.tenant, e.job_id, e.name))
            if piece:
                yield piece
            listener.at = found[-1].cursor
        listener.at = max(listener.at, until)

    def close(self) -> None:
        """End all streams, because the process stops."""
        self._is_closed = True
        for listener in self._listeners:
            listener.end("The server is restarting. Reconnect with the cursor.")
        if self._reading is not None:
            self._reading.cancel()

    def _admit(self, tenant: str, user: str) -> None:
        most_of_tenant, most_of_one = max(self._most // 2, 1), max(self._most // 4, 1)
        if self._is_closed:
            raise TooMany("events: the server is stopping.", retry_after=RETRY_AFTER)
        if self.count >= self._most:
            raise TooMany(
                f"events: {self._most:,} streams are open, which is the limit. Close pages "
                "that you do not need, or raise QUIRE_API_MAX_STREAMS.",
                retry_after=RETRY_AFTER,
            )
        if sum(each == tenant for each, _ in self._open) >= most_of_tenant:
            raise TooMany(
                f"events: your tenant has {most_of_tenant:,} streams open, which is the limit "
                "per tenant. Close pages that you do not need.",
                retry_after=RETRY_AFTER,
            )
        if self._open.count((tenant, user)) >= most_of_one:
            raise TooMany(
                f"events: user {user} has {most_of_one:,} streams open, which is the limit "
                "per user. Close pages that you do not need.",
                retry_after=RETRY_AFTER,
            )
        self._open.append((tenant, user))

    async def _read_on(self) -> None:
        try:
            while self._listeners:
                await asyncio.sleep(POLL_SECONDS if await self._round() else RETRY_SECONDS)
        finally:
            for listener in self._listeners:
                listener.end("The server is restarting. Reconnect with the cursor.")

    async def _round(self) -> bool:
        """Read new events and broadcast them; False while the database is unavailable."""
        while True:
            tenants = {listener.wanted.tenant for listener in self._listeners}
            try:
                found, pulses = await asyncio.to_thread(self._read, tenants)
            except QuireError as error:
                log.trouble("events.wait", error)
                self._error = error
                return False
            self._error = None
            if isinstance(found, Cursor):
                self._restart(found)
                return True
            self._broadcast(found, pulses)
            if len(found) < tail.PAGE:
                return True

    def _restart(self, head: Cursor) -> None:
        """End the streams of another cluster's cursors; they reconnect at the same event here."""
        self._at = head
        for listener in self._listeners:
            listener.end("The database was restored. Reconnect with the cursor.")
        self._listeners.clear()

    def _broadcast(self, found: Sequence[StreamedEvent], pulses: dict[str, Activity]) -> None:
        if found:
            self._at = found[-1].cursor
        lines = [(each, _line(each)) for each in found]
        pieces: dict[EventFilter, bytes] = {}
        for listener in list(self._listeners):
            wanted = listener.wanted
            if wanted not in pieces:
                pieces[wanted] = _joined(lines, wanted) + self._hint(wanted, pulses)
            piece = pieces[wanted]
            if lines and listener.at >= lines[0][0].cursor:
                # Its cursor is from a process that had read further.
                own = [each for each in lines if each[0].cursor > listener.at]
                piece = _joined(own, wanted)
            if piece:
                listener.put(self._at, piece)
            if listener.ended is not None:
                self._listeners.discard(listener)
        self._pulses = pulses

    def _hint(self, wanted: EventFilter, pulses: dict[str, Activity]) -> bytes:
        before, now = self._pulses.get(wanted.tenant), pulses.get(wanted.tenant)
        if before is None or now is None or before == now:
            return b""
        if not wanted.fits(wanted.tenant, wanted.job_id, CHANGED):
            return b""
        job_id = wanted.job_id
        if job_id is not None and before.of_job(job_id) == now.of_job(job_id):
            return b""
        return message({"name": CHANGED, "job_id": job_id})

    def _head(self) -> Cursor:
        self._adopt_restored()
        with self._db.read() as conn:
            return tail.head(conn)

    def _local(self, cursor: Cursor) -> Cursor:
        self._adopt_restored()
        with self._db.read() as conn:
            return tail.local(conn, cursor)

    def _adopt_restored(self) -> None:
        with self._db.read() as conn:
            if not tail.has_restored(conn):
                return
        self._db.write(lambda conn, now: events.adopt_restored(conn))

    def _read(
        self, tenants: Iterable[str]
    ) -> tuple[list[StreamedEvent] | Cursor, dict[str, Activity]]:
        """Return new events, or where to start if the position is of another cluster."""
        with self._db.read() as conn:
            if not self._at.xid or tail.local(conn, self._at) == self._at:
                found = tail.read_after(conn, set(tenants), self._at)
                return found, {tenant: tail.activity(conn, tenant) for tenant in tenants}
        return self._head(), {}

    def _between(self, wanted: EventFilter, after: Cursor, until: Cursor) -> list[StreamedEvent]:
        with self._db.read() as conn:
            return tail.read_after(conn, [wanted.tenant], after, until=until, job_id=wanted.job_id)


def message(shape: dict[str, Any], *, cursor: Cursor | None = None, name: str = "") -> bytes:
    """Encode one message; without data it only carries the cursor."""
    lines = [f"id: {cursor}"] if cursor is not None else []
    lines += [f"event: {name}"] if name else []
    lines += [f"data: {json.dumps(shape, separators=(',', ':'))}"] if shape else []
    return ("\n".join(lines) + "\n\n").encode()


def _joined(lines: Sequence[tuple[StreamedEvent, bytes]], wanted: EventFilter) -> bytes:
    return b"".join(text for e, text in lines if wanted.fits(e.tenant, e.job_id, e.name))


def _line(event: StreamedEvent) -> bytes:
    return message(event.shape, cursor=event.cursor)
