"""Brings the bytes of one item from any remote source: chunks, retries, resume, checks.

A source only says how to ask for its bytes (a `Remote`). A chunk is asked for by Range and has a
wall clock of its own; a failed try is waited for and goes on behind what has arrived. A server
that knows no ranges sends one long body, which is counted in the same chunks.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from quire.clock import SystemClock
from quire.errors import FetchFailed, Gone, SourceRefused
from quire.fetch.http_client import Answer, Broken, Request, Web
from quire.fetch.items import Check, Fetched, Item, Progress, SourceOptions
from quire.fetch.transfer import part_file, response_headers
from quire.fetch.transfer.part_file import Part
from quire.fetch.transfer.retry import Patience
from quire.fetch.transfer.verify import refuse_size, verify

_LATER = frozenset({408, 429})


@dataclass(frozen=True, slots=True)
class Remote:
    """How the bytes of one item are asked for."""

    #: Makes the request anew for each try, so that a token or signature is fresh.
    request: Callable[[], Request]
    #: Called after a 401; tells whether another try has other credentials.
    refresh: Callable[[], bool] = lambda: False
    etag_is_md5: bool = False
    #: Made on request by the source, without size or hash to compare with.
    exported: bool = False


class _Changed(Exception):
    """The source has other bytes than those that have arrived."""


def transfer(
    remote: Remote,
    item: Item,
    path: Path,
    options: SourceOptions,
    progress: Progress,
    check: Check,
) -> Fetched:
    """Bring the verified bytes of an item to `path`; what a broken run left there is used."""
    if item.size is not None and item.size > options.max_bytes:
        raise part_file.too_large(item.name, item.size, options.max_bytes)
    note = {} if remote.exported else usable_note(item, path)
    kept = int(str(note.get("kept", 0)))
    with Web(options, check) as web, Part(path, item.name, keep=kept) as part:
        run = _Transfer(remote, item, part, web, options, progress, check)
        run.resume(note)
        return run.finish()


class _Transfer:
    """The state of one transfer."""

    def __init__(
        self,
        remote: Remote,
        item: Item,
        part: Part,
        web: Web,
        options: SourceOptions,
        progress: Progress,
        check: Check,
    ) -> None:
        self.remote, self.item, self.part, self.web = remote, item, part, web
        self.options, self.progress, self.check = options, progress, check
        self.patience = Patience(item.name, options, check)
        self.etag: str | None = None
        self.total: int | None = None
        self.media_type = item.media_type
        self.digests: dict[str, str] = {}
        self.ranged = False  # the server has answered with a range
        self.refreshed = False
        self.restarts = 0
        self.furthest = 0  # chunks that have been here, also before a new start
        self.goal = 0
        self.done = False
        self.resumed_from = 0

    def resume(self, note: dict[str, object]) -> None:
        """Go on with what an earlier run left."""
        total, etag, known = note.get("total"), note.get("etag"), note.get("digests")
        self.resumed_from = self.part.size
        self.total = total if isinstance(total, int) else None
        self.etag = str(etag) if etag else None
        self.digests = dict(known) if isinstance(known, dict) else {}
        self.ranged = self.part.size > 0
        self.furthest = self.part.size // self.options.limits.chunk_bytes
        self.done = self.part.size > 0 and self.part.size == self.total
        self._aim()

    def finish(self) -> Fetched:
        """Bring chunk after chunk until all is here, then check it."""
        while not self.done:
            self.check()
            try:
                self.patience.require_time(self._kept())
                self._try()
            except Broken as broken:
                self._bear(broken)
            except _Changed:
                self._count_restart()
                self._forget()
        return self._verified()

    def _verified(self) -> Fetched:
        part, item = self.part, self.item
        if item.media_type is None:
            item = item._replace(media_type=self.media_type)
        checked = verify(part, item, self.total, self.digests)
        if self.remote.exported:
            checked = "signature only" if "signature" in checked else "nothing: made on request"
        part_file.note_of(part.path).unlink(missing_ok=True)
        return Fetched(
            part.size, part.sha256, part.md5, self.etag, self.media_type, checked, self.resumed_from
        )

    def _try(self) -> None:
        with self.web.ask(self._request()) as answer:
            if answer.status in (200, 206):
                self._take(answer)
            elif answer.status == 416:
                self._beyond(answer)
            else:
                self._refused(answer)

    def _request(self) -> Request:
        request = self.remote.request()
        if self.remote.exported:
            return request
        headers = {"Range": f"bytes={self.part.size}-{self.goal - 1}"}
        if self.part.size and response_headers.is_strong(self.etag):
            headers["If-Range"] = str(self.etag)
        return replace(request, headers={**request.headers, **headers})

    def _take(self, answer: Answer) -> None:
        """Write the body of an answer behind what is here."""
        span = response_headers.span(answer.headers) if answer.status == 206 else None
        if answer.status == 206:
            if span is None or span.start != self.part.size:
                got = answer.headers.get("content-range", "none")
                raise Broken(f"another range came (expected from {self.part.size}, got {got})")
            self._compare(answer.headers, span.total)
            self.ranged = True
        else:
            self._begin_whole(answer)
        self._learn(answer, span)
        stop = span.stop if span else self.total
        for piece in answer.pieces:
            self._write(piece, stop)
        if stop is not None and self.part.size < stop:
            raise Broken(f"the body ended early (expected {stop:,} bytes, got {self.part.size:,})")
        self._arrived()
        whole = span is None or (span.total is None and span.stop < self.goal)
        self.done = whole or self.part.size == self.total

    def _compare(self, headers: dict[str, str], total: int | None) -> None:
        """Make sure that a range is of the bytes that are here already."""
        etag = headers.get("etag")
        if self.etag and etag and etag != self.etag:
            raise _Changed
        if self.total is not None and total is not None and total != self.total:
            raise _Changed

    def _begin_whole(self, answer: Answer) -> None:
        """Begin again in place: the server sends the file from its first byte."""
        etag = answer.headers.get("etag")
        if self.part.size and self.ranged and not (etag and etag == self.etag):
            self._count_restart()
        self._forget()

    def _learn(self, answer: Answer, span: response_headers.Span | None) -> None:
        headers = answer.headers
        total = span.total if span else response_headers.length(headers)
        if total is not None:
            self.total = total
            if total > self.options.max_bytes:
                part_file.remove(self.part.path)
                raise part_file.too_large(self.item.name, total, self.options.max_bytes)
            if self.item.size is not None and total != self.item.size:
                refuse_size(self.part, self.item, self.item.size, total)
        self.etag = headers.get("etag") or self.etag
        self.media_type = self.media_type or headers.get("content-type")
        self.digests |= response_headers.digests(headers, whole=span is None)
        if self.remote.etag_is_md5 and (md5 := response_headers.md5_of_etag(headers)):
            self.digests["md5"] = md5

    def _write(self, piece: bytes, stop: int | None) -> None:
        self.check()
        self.web.deadline.left()  # a body in the buffer must not outlive its time either
        size = self.part.size + len(piece)
        if size > self.options.max_bytes:
            part_file.remove(self.part.path)
            raise part_file.too_large(self.item.name, size, self.options.max_bytes)
        if stop is not None and size > stop:
            refuse_size(self.part, self.item, stop, size)
        self.part.write(piece)
        self.progress(self.part.size, self.total)
        if self.part.size >= self.goal:
            self._arrived()
            self.web.deadline.begin(self.options.limits.chunk_seconds)
            self.patience.require_time(self._kept())

    def _arrived(self) -> None:
        """Count a chunk: tries begin anew, and the part may be resumed from here."""
        chunks = self.part.size // self.options.limits.chunk_bytes
        if chunks > self.furthest or self.part.size == self.total:
            # A body that begins anew after each cut must get further, or the tries never end.
            self.furthest = max(chunks, self.furthest)
            self.patience.renew()
        self.refreshed = False
        self._aim()
        self._note()

    def _aim(self) -> None:
        """Set the end of the chunk that is under way."""
        chunk = self.options.limits.chunk_bytes
        self.goal = (self.part.size // chunk + 1) * chunk

    def _beyond(self, answer: Answer) -> None:
        """Judge a 416: the file ends here, or it is shorter than what has arrived."""
        total = response_headers.total_of_unmet_range(answer.headers)
        if total not in (None, self.part.size):
            raise _Changed
        self.total = self.part.size
        self.etag = answer.headers.get("etag") or self.etag
        self.done = True

    def _refused(self, answer: Answer) -> None:
        """Judge an answer without bytes: another try, or the end."""
        status, body = answer.status, answer.text()
        if status == 401 and not self.refreshed and self.remote.refresh():
            self.refreshed = True
            return
        later = status >= 500 or status in _LATER
        if later or (status == 403 and response_headers.is_rate_limit(body)):
            pause = response_headers.retry_after(answer.headers, SystemClock().now().wall)
            raise Broken(f"the server answers {status}", pause)
        part_file.remove(self.part.path)
        raise refusal(self.item.name, status, response_headers.google_message(body))

    def _bear(self, broken: Broken) -> None:
        try:
            self.patience.bear(broken, self._kept())
        except FetchFailed:
            self._note()
            raise

    def _kept(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        return f"{self.part.size:,}{of} bytes have arrived."

    def _count_restart(self) -> None:
        self.restarts += 1
        if self.restarts > 1:
            part_file.remove(self.part.path)
            raise FetchFailed(
                f"{self.item.name}: changed while it was read, twice. The partial file was "
                "removed; the work is tried again."
            )

    def _forget(self) -> None:
        self.part.clear()
        self.etag, self.total, self.digests = None, None, {}
        self._aim()

    def _note(self) -> None:
        """Say how much is safe on the disk, and of which bytes."""
        if self.done or not (self.item.md5 or response_headers.is_strong(self.etag)):
            return
        self.part.sync()
        part_file.write_note(
            self.part.path,
            {
                "uri": self.item.uri,
                "size": self.item.size,
                "md5": self.item.md5,
                "etag": self.etag,
                "total": self.total,
                "digests": self.digests,
                "kept": self.part.size,
            },
        )


def usable_note(item: Item, path: Path) -> dict[str, object]:
    """Return the note of what an earlier run left, if that is surely of the item's bytes."""
    note = part_file.read_note(path)
    etag, kept = note.get("etag"), note.get("kept")
    if not isinstance(kept, int) or kept <= 0 or not path.is_file():
        return {}
    if note.get("uri") != item.uri or note.get("size") != item.size:
        return {}
    if item.md5:
        same = note.get("md5") == item.md5
    elif item.etag:
        same = etag == item.etag and response_headers.is_strong(item.etag)
    else:
        # Nothing is listed to compare with: the server judges by If-Range, so it must be asked.
        same = response_headers.is_strong(str(etag or "")) and kept != note.get("total")
    return note if same else {}


def refusal(name: str, status: int, message: str = "") -> SourceRefused:
    """Word an answer that another try will not change."""
    because = f": {message}" if message else ""
    if status in (404, 410):
        return Gone(f"{name}: is not there (the server answers {status}{because}).")
    if status in (401, 403):
        return SourceRefused(
            f"{name}: access is refused (the server answers {status}{because}). "
            "Check the credentials and who the file is shared with."
        )
    return SourceRefused(f"{name}: the server answers {status}{because}. It is not tried again.")
