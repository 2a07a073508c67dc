"""Real servers on loopback that fail as they are told: HTTP, Google Drive v3, a proxy to S3.

A server makes a reply; a fault, if one is waiting for this request, changes how it is sent.
So every protocol has the same faults. A server ends with its `with` block.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Asked:
    """One request as the server saw it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""

    @property
    def range(self) -> tuple[int, int] | None:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        return (int(found[1]), int(found[2])) if found else None


@dataclass
class Reply:
    """What is to be sent."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


Sender = Callable[["_Handler", Reply], None]


@dataclass
class Fault:
    """Changes the reply to the next requests for bytes, or how it is sent."""

    change: Callable[[Reply], Reply] = lambda reply: reply
    send: Sender | None = None


def answer(status: int, body: bytes = b"", **headers: str) -> Fault:
    """Answer with another status."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Fault(lambda _: Reply(status, named, body))


def rate_limit(reason: str = "userRateLimitExceeded") -> Fault:
    """Answer as Drive does when too much was asked."""
    error = {"errors": [{"reason": reason}], "code": 403, "message": "Rate Limit Exceeded"}
    return answer(403, json.dumps({"error": error}).encode(), content_type="application/json")


def redirect(url: str) -> Fault:
    return answer(302, location=url)


def cut(after: int) -> Fault:
    """Announce all, send some, close the connection."""

    def send(handler: _Handler, reply: Reply) -> None:
        handler.start(reply)
        handler.wfile.write(reply.body[:after])
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    return Fault(send=send)


def stall(after: int) -> Fault:
    """Send some, then nothing until the client goes away."""

    def send(handler: _Handler, reply: Reply) -> None:
        handler.start(reply)
        handler.wfile.write(reply.body[:after])
        handler.wfile.flush()
        handler.wait_until_gone()

    return Fault(send=send)


def silence() -> Fault:
    """Answer nothing until the client goes away."""

    def send(handler: _Handler, reply: Reply) -> None:
        handler.wait_until_gone()

    return Fault(send=send)


def trickle() -> Fault:
    """Send a byte now and then: no single read is slow, the whole never ends."""

    def send(handler: _Handler, reply: Reply) -> None:
        handler.start(reply)
        for number in range(len(reply.body)):
            try:
                handler.wfile.write(reply.body[number : number + 1])
            except OSError:
                return
            if handler.wait_until_gone(0.02):
                return

    return Fault(send=send)


def shorten(count: int) -> Fault:
    """Say that fewer bytes are there than the listing said, and send them."""

    def change(reply: Reply) -> Reply:
        headers = dict(reply.headers)
        if found := re.fullmatch(r"bytes (\d+)-\d+/(\d+)", headers.get("content-range", "")):
            total = int(found[2]) - count
            headers["content-range"] = f"bytes {found[1]}-{total - 1}/{total}"
        return replace(reply, headers=headers, body=reply.body[:-count])

    return Fault(change)


def damage() -> Fault:
    """Send as many bytes as there are, but other ones."""

    def change(reply: Reply) -> Reply:
        return replace(reply, body=bytes([reply.body[0] ^ 255]) + reply.body[1:])

    return Fault(change)


class FaultyServer:
    """A server on a free port of loopback; `faults` are used up one by one."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.faults: list[Fault] = []
        #: A fault for every request for bytes, after the list is used up.
        self.always: Fault | None = None
        #: Faults for requests for the bytes at paths with these endings, used up one by one.
        self.at: dict[str, list[Fault]] = {}
        owner = self

        class Handler(_Handler):
            server_of_test = owner

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self.ended = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reply(self, asked: Asked) -> Reply:
        raise NotImplementedError

    def is_for_bytes(self, asked: Asked) -> bool:
        """Tell whether faults apply to a request."""
        raise NotImplementedError

    def bytes_asked(self) -> list[Asked]:
        return [each for each in self.asked if self.is_for_bytes(each)]

    def fault_for(self, asked: Asked) -> Fault | None:
        if not self.is_for_bytes(asked):
            return None
        for ending, some in self.at.items():
            if some and asked.path.endswith(ending):
                return some.pop(0)
        return self.faults.pop(0) if self.faults else self.always


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of_test: FaultyServer

    def respond(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        headers = {key.lower(): value for key, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        asked = Asked(self.command, unquote(parts.path), query, headers, body)
        asked_raw = self.path
        owner = self.server_of_test
        owner.asked.append(asked)
        fault = owner.fault_for(asked)
        reply = owner.reply(replace(asked, path=asked_raw) if _is_proxy(owner) else asked)
        if fault:
            reply = fault.change(reply)
        if fault and fault.send:
            fault.send(self, reply)
            return
        self.start(reply)
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def start(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for key, value in reply.headers.items():
            if key not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(key, value)
        length = reply.headers.get("content-length") if self.command == "HEAD" else None
        self.send_header("content-length", length or str(len(reply.body)))
        self.end_headers()

    def wait_until_gone(self, seconds: float = 30.0) -> bool:
        """Wait until the client closes the connection or the test ends."""
        self.connection.settimeout(0.02)
        end = threading.Event()
        for _ in range(max(1, int(seconds / 0.02))):
            try:
                if self.connection.recv(1) == b"":
                    break
            except TimeoutError:
                pass
            except OSError:
                break
            if self.server_of_test.ended.is_set():
                break
        else:
            self.connection.settimeout(None)
            return False
        end.set()
        self.close_connection = True
        return True

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = respond

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _is_proxy(server: FaultyServer) -> bool:
    return isinstance(server, Proxy)


def ranged(asked: Asked, content: bytes, headers: dict[str, str]) -> Reply:
    """Answer a request for a file as a web server does: whole, a range, or 416."""
    headers = {"accept-ranges": "bytes", **headers}
    wanted = asked.range
    guard = asked.headers.get("if-range")
    if wanted is None or (guard and guard != headers.get("etag")):
        return Reply(200, headers, content)
    start, stop = wanted[0], min(wanted[1] + 1, len(content))
    if start >= len(content):
        return Reply(416, {**headers, "content-range": f"bytes */{len(content)}"})
    headers["content-range"] = f"bytes {start}-{stop - 1}/{len(content)}"
    return Reply(206, headers, content[start:stop])


class FileServer(FaultyServer):
    """Serves files over HTTP, with or without ranges, ETags and digests."""

    def __init__(self, *, ranges: bool = True, etags: bool = True, guards: bool = True) -> None:
        super().__init__()
        self.guards = guards
        self.files: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.ranges = ranges
        self.etags = etags

    def put(self, path: str, content: bytes, **headers: str) -> str:
        """Put a file, or other bytes in its place; return its URL."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        named.setdefault("repr-digest", f"sha-256=:{digest}:")
        if self.etags:
            named.setdefault("etag", f'"{hashlib.sha256(content).hexdigest()[:16]}"')
        self.files[path] = content, named
        return self.url + path

    def is_for_bytes(self, asked: Asked) -> bool:
        return asked.headers.get("range") != "bytes=0-0"

    def reply(self, asked: Asked) -> Reply:
        if asked.path not in self.files:
            return Reply(404, {}, b"not here")
        content, headers = self.files[asked.path]
        if not self.ranges:
            return Reply(200, headers, content)
        if not self.guards:
            asked.headers.pop("if-range", None)
        return ranged(asked, content, headers)


@dataclass
class DriveFile:
    """A file or folder of the Drive double."""

    id: str
    name: str
    mime: str
    parent: str
    content: bytes | None = None
    drive: str | None = None
    target: str | None = None
    can_download: bool = True
    modified: str = "2026-01-02T03:04:05.000Z"

    def known(self) -> dict[str, Any]:
        """Return the metadata as the API words it."""
        found: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "mimeType": self.mime,
            "modifiedTime": self.modified,
            "capabilities": {"canDownload": self.can_download},
        }
        if self.drive:
            found["driveId"] = self.drive
        if self.target:
            found["shortcutDetails"] = {"targetId": self.target}
        if self.content is not None:
            found["size"] = str(len(self.content))
            found["md5Checksum"] = hashlib.md5(self.content).hexdigest()  # noqa: S324
            found["sha256Checksum"] = hashlib.sha256(self.content).hexdigest()
            found["headRevisionId"] = found["md5Checksum"][:12]
        return found


FOLDER = "application/vnd.google-apps.folder"
SHORTCUT = "application/vnd.google-apps.shortcut"


class DriveServer(FaultyServer):
    """Speaks files.list, files.get, alt=media, export, and gives tokens."""

    def __init__(self, page: int = 1000) -> None:
        super().__init__()
        self.files: dict[str, DriveFile] = {}
        self.exports: dict[tuple[str, str], bytes] = {}
        self.page = page
        self.tokens = 0

    def put(self, file: DriveFile) -> DriveFile:
        self.files[file.id] = file
        return file

    def expire_token(self) -> None:
        """Refuse the token given last."""
        self.tokens += 1

    def is_for_bytes(self, asked: Asked) -> bool:
        return asked.query.get("alt") == "media" or asked.path.endswith("/export")

    def reply(self, asked: Asked) -> Reply:
        if asked.path == "/token":
            self.tokens += 1
            known = {"access_token": self._token, "expires_in": 3600, "token_type": "Bearer"}
            return _json(known)
        if asked.headers.get("authorization") != f"Bearer {self._token}":
            return _error(401, "authError", "Invalid Credentials")
        if asked.path == "/drive/v3/files":
            return self._list(asked)
        found = re.fullmatch(r"/drive/v3/files/([^/]+)(/export)?", asked.path)
        file = self.files.get(found[1]) if found else None
        shared = asked.query.get("supportsAllDrives") == "true"
        if file is None or found is None or (file.drive and not shared and not found[2]):
            return _error(404, "notFound", "File not found: .")
        if found[2]:
            return self._export(file, asked)
        if asked.query.get("alt") == "media":
            if file.content is None:
                return _error(403, "fileNotDownloadable", "Only files with binary content.")
            return ranged(asked, file.content, {"content-type": file.mime})
        return _json(_chosen(file.known(), asked.query["fields"]))

    @property
    def _token(self) -> str:
        return f"token-{self.tokens}"

    def _export(self, file: DriveFile, asked: Asked) -> Reply:
        content = self.exports.get((file.id, asked.query["mimeType"]))
        if content is None:
            return _error(403, "exportSizeLimitExceeded", "This file is too large to be exported.")
        return Reply(200, {"content-type": asked.query["mimeType"]}, content)

    def _list(self, asked: Asked) -> Reply:
        found = re.fullmatch(r"'([^']+)' in parents and trashed = false", asked.query["q"])
        if not found:
            return _error(400, "invalid", "Invalid Value")
        inside = [each for each in self.files.values() if each.parent == found[1]]
        everywhere = asked.query.get("includeItemsFromAllDrives") == "true"
        inside = [
            each
            for each in inside
            if not each.drive or (everywhere and asked.query.get("driveId") == each.drive)
        ]
        inside.sort(key=lambda each: each.name)
        token = asked.query.get("pageToken", f"{found[1]}-0")
        if not token.startswith(f"{found[1]}-"):
            return _error(400, "invalid", "Invalid Value")
        first = int(token.rpartition("-")[2])
        last = first + min(self.page, int(asked.query.get("pageSize", 100)))
        files = [_chosen(each.known(), asked.query["fields"]) for each in inside[first:last]]
        more = {"nextPageToken": f"{found[1]}-{last}"} if last < len(inside) else {}
        return _json({"files": files, **more})


class Proxy(FaultyServer):
    """Passes requests on to an S3 server, with faults on those for the bytes of objects."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._upstream = host, port

    def is_for_bytes(self, asked: Asked) -> bool:
        return asked.method == "GET" and "range" in asked.headers

    def reply(self, asked: Asked) -> Reply:
        connection = http.client.HTTPConnection(*self._upstream, timeout=20)
        try:
            connection.request(asked.method, asked.path, asked.body, asked.headers)
            got = connection.getresponse()
            headers = {key.lower(): value for key, value in got.getheaders()}
            return Reply(got.status, headers, got.read())
        finally:
            connection.close()


def _chosen(known: dict[str, Any], fields: str) -> dict[str, Any]:
    """Keep the fields that were asked for, as the API does."""
    return {key: value for key, value in known.items() if re.search(rf"\b{key}\b", fields)}


def _json(known: dict[str, Any], status: int = 200) -> Reply:
    return Reply(status, {"content-type": "application/json"}, json.dumps(known).encode())


def _error(status: int, reason: str, message: str) -> Reply:
    error = {"errors": [{"reason": reason, "message": message}], "code": status}
    return _json({"error": {**error, "message": message}}, status)
