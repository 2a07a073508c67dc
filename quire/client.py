"""Client for the HTTP API: the same actions, JSON and errors as the local `App`.

with Client("http://localhost:8750", token) as quire:
    job_id = quire.submit("greet", {"name": "Ada"})
    for event in quire.events(job=job_id): ...
"""

import contextlib
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self
from urllib.parse import urlsplit

from quire import errors

if TYPE_CHECKING:
    import httpx

Json = dict[str, Any]

#: Error classes by the title of a problem, and by the status of an answer without one.
BY_TITLE = {title: known for known, (_, title) in errors.STATUS.items()}
_BY_STATUS = {
    status: known for known, (status, _) in reversed(errors.STATUS.items()) if status < 500
}
#: Seconds of silence after which a stream is dead; the server sends a comment every 15 seconds.
SILENCE = 45.0
FIRST_WAIT, LONGEST_WAIT = 0.5, 10.0
PAGE = 200


class Client:
    """A connection to one server. Use it in a `with` block, or close it."""

    def __init__(self, url: str, token: str = "", *, timeout: float = 30.0) -> None:
        import httpx

        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = _checked(url)
        self._timeout = timeout
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # ------------------------------------------------------------------ jobs

    def submit(
        self, kind: str, payload: Json | None = None, *, key: str | None = None, **more: Any
    ) -> int:
        """Submit a job and return its id. More: priority, run_at, after, platform, account …"""
        body = {"kind": kind, "payload": payload or {}, **more}
        # With a key of its own a repeated request makes nothing twice.
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return int(self._post("/api/jobs", body, headers=headers)["id"])

    def job(self, job_id: int) -> Json:
        """Return a job."""
        return self._get(f"/api/jobs/{job_id}")

    def page_of_jobs(self, *, limit: int = 50, cursor: str | None = None, **filters: Any) -> Json:
        """Return one page of jobs, latest first; filters: state, kind, platform, account, user."""
        return self._get("/api/jobs", limit=limit, cursor=cursor, **filters)

    def jobs(self, **filters: Any) -> Iterator[Json]:
        """Iterate over all jobs that match, latest first."""
        return self._all("/api/jobs", filters)

    def stop(self, job_id: int, *, why: str | None = None) -> Json:
        """Stop a job; it can be resumed."""
        return self._post(f"/api/jobs/{job_id}/stop", {"why": why})

    def cancel(self, job_id: int, *, why: str | None = None) -> Json:
        """Cancel a job permanently."""
        return self._post(f"/api/jobs/{job_id}/cancel", {"why": why})

    def resume(self, job_id: int) -> Json:
        """Resume a stopped or failed job."""
        return self._post(f"/api/jobs/{job_id}/resume")

    def retry(
        self, job_id: int, *, only_failed: bool = False, document_id: int | None = None
    ) -> Json:
        """Run unsuccessful tasks again."""
        body = {"only_failed": only_failed, "document_id": document_id}
        return self._post(f"/api/jobs/{job_id}/retry", body)

    def reprioritise(self, job_id: int, priority: int) -> Json:
        """Change the priority of a job, 1 (highest) to 10 (lowest)."""
        return self._post(f"/api/jobs/{job_id}/priority", {"priority": priority})

    def delete(self, job_id: int) -> None:
        """Delete a job that has ended."""
        self._ask("DELETE", f"/api/jobs/{job_id}")

    def explain(self, job_id: int, *, task: int | None = None) -> Json:
        """Explain what a job or one of its tasks waits for, and what happens next."""
        return self._get(f"/api/jobs/{job_id}/explain", task=task)

    def part_of_job(self, job_id: int, part: str, **how: Any) -> Json:
        """Return a page of a job's `tasks`, `attempts`, `files` or `events`."""
        return self._get(f"/api/jobs/{job_id}/{part}", **how)

    # ------------------------------------------------------------------ documents

    def upload(self, *files: Path, corpus: str | None = None, key: str | None = None) -> Json:
        """Upload files; returns the id of their job and of their documents."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(_opened(path)) for path in files]
            how: Json = {"params": _given({"corpus": corpus}), "headers": headers}
            if len(opened) == 1:
                how["params"]["name"] = files[0].name
                how["headers"]["Content-Type"] = "application/octet-stream"
                return self._ask("POST", "/api/documents", content=opened[0], **how)
            sent = [("files", (p.name, f)) for p, f in zip(files, opened, strict=True)]
            return self._ask("POST", "/api/documents", files=sent, **how)

    def document(self, document_id: int) -> Json:
        """Return a document with its page errors and generations."""
        return self._get(f"/api/documents/{document_id}")

    def page_of_documents(
        self, *, limit: int = 50, cursor: str | None = None, **filters: Any
    ) -> Json:
        """Return one page of documents, latest first; filters: state, corpus, source."""
        return self._get("/api/documents", limit=limit, cursor=cursor, **filters)

    def documents(self, **filters: Any) -> Iterator[Json]:
        """Iterate over all documents that match, latest first."""
        return self._all("/api/documents", filters)

    def search(self, query: str, *, where: Mapping[str, str] | None = None, **how: Any) -> Json:
        """Search; options: mode, corpus, document, media_type, limit, explain."""
        pairs = [f"{name}={value}" for name, value in (where or {}).items()]
        return self._get("/api/search", q=query, where=pairs or None, **how)

    # ------------------------------------------------------------------ the rest

    def status(self) -> Json:
        """Count by state, and list workers."""
        return self._get("/api/status")

    def events(
        self,
        *,
        job: int | None = None,
        names: Sequence[str] = (),
        cursor: str | None = None,
        hints: bool = False,
    ) -> Iterator[Json]:
        """Follow events for ever; reconnects automatically and misses nothing.

        Each has its `cursor`. With `hints` also `queue.changed`, which is not stored.
        """
        wait = FIRST_WAIT
        while True:
            try:
                for event in self._stream(job, names, cursor):
                    wait = FIRST_WAIT
                    cursor = event.pop("cursor", None) or cursor
                    if event and (hints or event.get("name") != "queue.changed"):
                        yield {**event, "cursor": cursor}
            except errors.TooMany as error:
                wait = max(wait, error.retry_after)
            except errors.Transient as error:
                wait = max(wait, error.retry_after or 0.0)
            time.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)

    def _stream(self, job: int | None, names: Sequence[str], cursor: str | None) -> Iterator[Json]:
        import httpx

        params = _given({"job": job, "names": ",".join(names) or None})
        headers = {"Last-Event-ID": cursor} if cursor else {}
        timeout = httpx.Timeout(self._timeout, read=SILENCE)
        try:
            with self._http.stream(
                "GET", "/api/events", params=params, headers=headers, timeout=timeout
            ) as answer:
                if answer.status_code >= 400:
                    answer.read()
                    raise _error(answer)
                yield from _messages(answer.iter_lines())
        except httpx.TransportError as error:
            raise self._away(error) from error

    def _get(self, path: str, **params: Any) -> Json:
        return self._ask("GET", path, params=_given(params))

    def _post(self, path: str, body: Json | None = None, **how: Any) -> Json:
        sent = None if body is None else _given(body)
        return self._ask("POST", path, json=sent, **how)

    def _all(self, path: str, filters: Mapping[str, Any]) -> Iterator[Json]:
        cursor: str | None = None
        while True:
            page = self._get(path, limit=PAGE, cursor=cursor, **filters)
            yield from page["items"]
            cursor = page["next"]
            if cursor is None:
                return

    def _ask(self, method: str, path: str, **how: Any) -> Json:
        import httpx

        try:
            answer = self._http.request(method, path, **how)
        except httpx.TransportError as error:
            raise self._away(error) from error
        if answer.status_code >= 400:
            raise _error(answer)
        return _read(answer) if answer.content else {}

    def _away(self, error: Exception) -> errors.Transient:
        return errors.Transient(
            f"server {self.url}: cannot be reached ({str(error) or type(error).__name__}). "
            "Start it with `quire up`, or look whether QUIRE_URL is right."
        )


def _error(answer: "httpx.Response") -> errors.QuireError:
    """Return the error that a problem stands for."""
    try:
        body = answer.json()
        what, title = f"{body['detail']} {body.get('remedy', '')}".strip(), body["title"]
    except (ValueError, KeyError, TypeError):
        what, title = f"{answer.url}: answered {answer.status_code}.", ""
    found = BY_TITLE.get(title) or _BY_STATUS.get(answer.status_code)
    if found is None:
        found = errors.Transient if answer.status_code >= 500 else errors.Refused
    told = answer.headers.get("Retry-After", "")
    if issubclass(found, errors.Transient):
        return found(what, retry_after=float(told) if told.isdigit() else None)
    if issubclass(found, errors.TooMany):
        return found(what, retry_after=float(told) if told.isdigit() else 1.0)
    return found(what)


def _read(answer: "httpx.Response") -> Json:
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise errors.Refused(
            f"{answer.url}: the answer is not Quire's. Look whether QUIRE_URL is right."
        )
    return found


def _messages(lines: Iterable[str]) -> Iterator[Json]:
    """Parse an event stream; a message without data still carries the cursor."""
    event: Json = {}
    is_bye = False
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "id":
            event["cursor"] = value
        elif field == "event":
            is_bye = value == "bye"
        elif field == "data":
            event.update({} if is_bye else json.loads(value))
        elif not line and event:
            yield event
            if is_bye:
                return
            event = {}


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise errors.BadInput(
            f"server {url[:100]!r}: not an address such as http://localhost:8750."
        )
    return url.rstrip("/")


def _given(values: Mapping[str, Any]) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise errors.BadInput(f"file {path}: {error.strerror}. Nothing was sent.") from error
