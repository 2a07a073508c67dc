"""One reader of events for the whole process, and what each open stream gets of it.

It reads while somebody listens, encodes each event once, and hands one piece a round to every
stream: a hundred streams cost little more than one. A stream that does not keep up is let go.
"""

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NamedTuple

from quire import log
from quire.errors import DatabaseUnavailable, QuireError, TooMany
from quire.model.access import Viewer
from quire.store.db.engine import Database
from quire.store.queue import tail
from quire.store.queue.tail import Activity, Cursor, StreamedEvent

INTERVAL = 0.25
#: Seconds between two tries while the database is away.
AWAY = 1.0
#: Pieces that wait for a stream: at one a round, so many rounds it may lag behind.
DEPTH = 64
RETRY_AFTER = 5.0
#: Says that jobs were submitted or tasks claimed. It is not stored, and has no cursor.
CHANGED = "queue.changed"


class Wanted(NamedTuple):
    """What a stream is about."""

    tenant: str
    job_id: int | None = None
    names: frozenset[str] = frozenset()

    def fits(self, tenant: str, job_id: int | None, name: str) -> bool:
        """Tell whether an event is for this stream."""
        if tenant != self.tenant or self.job_id not in (None, job_id):
            return False
        return not self.names or any(
            name == each or name.startswith(f"{each}.") for each in self.names
        )


class Listener:
    """One open stream: where it stands, and what waits for it."""

    def __init__(self, wanted: Wanted, user: str) -> None:
        self.wanted = wanted
        self.user = user
        #: Everything up to here is in the stream; set when it has joined.
        self.at = Cursor(0, 0)
        self.joined_at = Cursor(0, 0)
        self.ended: str | None = None
        self._pieces: deque[tuple[Cursor, bytes]] = deque()
        self._ring = asyncio.Event()

    def put(self, cursor: Cursor, piece: bytes) -> None:
        """Let a piece wait for the stream, or end it: a slow one must not fill the memory."""
        if len(self._pieces) >= DEPTH:
            self.end("This stream was read too slowly. Come back with the cursor.")
            return
        self._pieces.append((cursor, piece))
        self._ring.set()

    def end(self, why: str) -> None:
        """Let it take what waits, and no more."""
        self.ended = self.ended or why
        self._ring.set()

    async def take(self, within: float) -> bytes:
        """Return what waits, b"" if nothing came in time or it has ended."""
        if not self._pieces and self.ended is None:
            self._ring.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ring.wait(), max(within, 0.0))
        pieces = []
        while self._pieces:
            cursor, piece = self._pieces.popleft()
            self.at = max(self.at, cursor)
            pieces.append(piece)
        return b"".join(pieces)


class Tail:
    """The reader and its streams; lives on the event loop."""

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
        self._trouble: QuireError | None = None

    @property
    def count(self) -> int:
        """How many streams are open."""
        return len(self._open)

    async def join(self, viewer: Viewer, wanted: Wanted, cursor: Cursor | None) -> Listener:
        """Open a stream behind a cursor, or behind now; `leave` must follow."""
        self._admit(viewer)
        listener = Listener(wanted, viewer.user)
        try:
            async with self._starting:
                if self._reading is None or self._reading.done():
                    self._at = await asyncio.to_thread(self._head)
                    self._pulses, self._trouble = {}, None
                    self._reading = asyncio.create_task(self._read_on())
                if self._trouble is not None:
                    raise DatabaseUnavailable(str(self._trouble))
                # From here to the end nothing else runs: no event can slip in between.
                listener.joined_at = self._at
                listener.at = cursor or self._at
                self._listeners.add(listener)
        except BaseException:
            self._open.remove((viewer.tenant, viewer.user))
            raise
        return listener

    def leave(self, listener: Listener) -> None:
        """Forget a stream that was closed."""
        self._listeners.discard(listener)
        self._open.remove((listener.wanted.tenant, listener.user))

    async def missed(self, listener: Listener) -> AsyncIterator[bytes]:
        """Give what happened between the stream's cursor and the moment it joined."""
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
        """End all streams: the process is about to leave."""
        self._is_closed = True
        for listener in self._listeners:
            listener.end("The server restarts. Come back with the cursor.")
        if self._reading is not None:
            self._reading.cancel()

    def _admit(self, viewer: Viewer) -> None:
        who = (viewer.tenant, viewer.user)
        most_of_one = max(self._most // 2, 1)
        if self._is_closed:
            raise TooMany("events: the server is about to leave.", retry_after=RETRY_AFTER)
        if self.count >= self._most:
            raise TooMany(
                f"events: {self._most:,} streams are open, which is the limit. Close a page that "
                "is not looked at, or raise QUIRE_API_MAX_STREAMS.",
                retry_after=RETRY_AFTER,
            )
        if self._open.count(who) >= most_of_one:
            raise TooMany(
                f"events: user {viewer.user} has {most_of_one:,} streams open, which is the limit "
                "for one. Close a page that is not looked at.",
                retry_after=RETRY_AFTER,
            )
        self._open.append(who)

    async def _read_on(self) -> None:
        try:
            while self._listeners:
                await asyncio.sleep(INTERVAL if await self._round() else AWAY)
        finally:
            for listener in self._listeners:
                listener.end("The server restarts. Come back with the cursor.")

    async def _round(self) -> bool:
        """Read what is there and hand it out; False while the database is away."""
        while True:
            tenants = {listener.wanted.tenant for listener in self._listeners}
            try:
                found, pulses = await asyncio.to_thread(self._read, tenants)
            except QuireError as error:
                log.trouble("events.wait", error)
                self._trouble = error
                return False
            self._trouble = None
            self._spread(found, pulses)
            if len(found) < tail.PAGE:
                return True

    def _spread(self, found: Sequence[StreamedEvent], pulses: dict[str, Activity]) -> None:
        if found:
            self._at = found[-1].cursor
        lines = [(each, _line(each)) for each in found]
        pieces: dict[Wanted, bytes] = {}
        for listener in list(self._listeners):
            wanted = listener.wanted
            if wanted not in pieces:
                pieces[wanted] = _joined(lines, wanted) + self._hint(wanted, pulses)
            piece = pieces[wanted]
            if lines and listener.at >= lines[0][0].cursor:
                # Its cursor is from a process that had read further than this one.
                own = [each for each in lines if each[0].cursor > listener.at]
                piece = _joined(own, wanted)
            if piece:
                listener.put(self._at, piece)
            if listener.ended is not None:
                self._listeners.discard(listener)
        self._pulses = pulses

    def _hint(self, wanted: Wanted, pulses: dict[str, Activity]) -> bytes:
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
        with self._db.read() as conn:
            return tail.head(conn)

    def _read(self, tenants: Iterable[str]) -> tuple[list[StreamedEvent], dict[str, Activity]]:
        with self._db.read() as conn:
            found = tail.read_after(conn, set(tenants), self._at)
            return found, {tenant: tail.activity(conn, tenant) for tenant in tenants}

    def _between(self, wanted: Wanted, after: Cursor, until: Cursor) -> list[StreamedEvent]:
        with self._db.read() as conn:
            return tail.read_after(conn, [wanted.tenant], after, until=until, job_id=wanted.job_id)


def message(shape: dict[str, Any], *, cursor: Cursor | None = None, name: str = "") -> bytes:
    """Write one message of a stream; without data it only tells where the reader stands."""
    lines = [f"id: {cursor}"] if cursor is not None else []
    lines += [f"event: {name}"] if name else []
    lines += [f"data: {json.dumps(shape, separators=(',', ':'))}"] if shape else []
    return ("\n".join(lines) + "\n\n").encode()


def _joined(lines: Sequence[tuple[StreamedEvent, bytes]], wanted: Wanted) -> bytes:
    return b"".join(text for e, text in lines if wanted.fits(e.tenant, e.job_id, e.name))


def _line(event: StreamedEvent) -> bytes:
    return message(event.shape, cursor=event.cursor)
