"""Serve the API and the dashboard on one port.

This process holds no lease and runs no task, so it can restart at any time.
"""

import asyncio
import contextlib
import errno
import functools
import gc
import logging
import os
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from quire import log
from quire.api import app as frame
from quire.api.auth import authenticate
from quire.api.stream import EventBroadcaster
from quire.app import App
from quire.control import sign_in
from quire.errors import DatabaseUnavailable, Refused
from quire.runtime.signals import STOP_SIGNALS, ParentPipe
from quire.runtime.worker import health
from quire.settings import Settings
from quire.web import admin, assets, corpora, documents, jobs, overview, search, synonyms
from quire.web.connection_caps import ConnectionCaps
from quire.web.header_timeout import HeaderTimeoutProtocol
from quire.web.rendering import error_page, wants_page

#: Seconds that an idle connection is kept open.
KEEP_ALIVE = 15
#: Seconds that open requests may take after the server was told to stop.
GRACE = 5
#: Seconds that a thread may compute while another one waits, instead of Python's 5 ms: a request
#: gives the interpreter up at each look into the database, and would wait as long each time.
SWITCH_SECONDS = 0.0005
#: Milliseconds after which the kernel drops a connection whose peer acknowledges nothing.
STALLED_MS = 30_000


def create(app: App) -> FastAPI:
    """Create the web application: API, dashboard and static files."""
    pages = (overview, jobs, documents, corpora, synonyms, search, admin, assets)
    api = frame.create_api(app, *(each.router for each in pages))
    known: Any = api.exception_handlers[HTTPException]

    async def answer(request: Request, error: Exception) -> Response:
        if wants_page(request):
            return error_page(request, error)
        response: Response = await known(request, error)
        return response

    # Unknown addresses belong to no route.
    api.add_exception_handler(HTTPException, answer)
    return api


def run(settings: Settings) -> int:
    """Serve until told to stop; returns the exit code."""
    authenticate.require_bind_allowed(settings)
    sys.setswitchinterval(SWITCH_SECONDS)
    sock = bound(settings.api_host, settings.api_port)
    app = App(settings, patient=True)
    server = Server(create(app), sock)
    _log_like_us()
    lock = health.hold(settings, "api", server.url)
    log.event("api.started", url=server.url, pid=os.getpid())
    invite(app, server.url)
    gc.freeze()  # what is loaded now stays; to scan it takes as long as two searches
    with _ending_with_parent(server):
        server.serve_until_told()
    app.close()
    lock.release()
    log.event("api.stopped")
    return 0


def bound(host: str, port: int) -> socket.socket:
    """Listen on an address, or raise Refused with the reason."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        reason = {
            errno.EADDRINUSE: "another program is using it",
            errno.EACCES: "this user has no permission to listen there",
            errno.EADDRNOTAVAIL: "this machine does not have that address",
        }.get(error.errno or 0, error.strerror or str(error))
        raise Refused(
            f"address {host}:{port}: {reason}. Nothing was started. Choose another with "
            "QUIRE_API_PORT or QUIRE_API_HOST."
        ) from error
    # Accepted connections inherit it. asyncio sets it only on sockets with an explicit protocol;
    # without it, Nagle's algorithm delays the second part of a response.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MS)
    return sock


class Server(uvicorn.Server):
    """Closes event streams before it waits for open requests."""

    def __init__(self, api: FastAPI, sock: socket.socket) -> None:
        settings: Settings = api.state.app_state.settings
        self.caps = ConnectionCaps(settings.api_max_connections, settings.trusted_proxies)
        super().__init__(
            uvicorn.Config(
                api,
                http=functools.partial(HeaderTimeoutProtocol, caps=self.caps),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=GRACE,
            )
        )
        self._tail: EventBroadcaster = api.state.tail
        self._sock = sock

    @property
    def url(self) -> str:
        """The URL of the server."""
        host, port = self._sock.getsockname()[:2]
        host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)  # noqa: S104
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def serve_until_told(self) -> None:
        """Serve until a signal, or until `should_exit` is set."""
        asyncio.run(self.serve(sockets=[self._sock]))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal, and at once on the second; uvicorn would re-raise it at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)

    def _on_signal(self, number: int, at: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close event streams, then the rest."""
        self._tail.close()
        await super().shutdown(sockets)


def invite(app: App, url: str) -> None:
    """Print the dashboard's URL; with a sign-in link as long as nobody has ever signed in."""
    link = None
    if app.settings.api_auth:
        # Without the database nobody can sign in; the next start prints the link.
        with contextlib.suppress(DatabaseUnavailable):
            link = sign_in.first_start(app.caller)
    if link is not None:
        print(f"Sign in (the link works once, for 15 minutes): {url}/sign-in/{link}", flush=True)
    else:
        print(f"Dashboard: {url}", flush=True)


def _log_like_us() -> None:
    """Log uvicorn's warnings in our format."""
    theirs = logging.getLogger("uvicorn")
    theirs.handlers[:] = logging.getLogger("quire").handlers
    theirs.setLevel(logging.WARNING)
    theirs.propagate = False


@contextlib.contextmanager
def _ending_with_parent(server: Server) -> Iterator[None]:
    """Stop the server when the process that started it ends."""
    selector = selectors.DefaultSelector()
    parent = ParentPipe(selector)

    def watch() -> None:
        while not parent.is_closed:
            selector.select()
            parent.read()
        server.should_exit = True

    if selector.get_map():
        threading.Thread(target=watch, name="parent-pipe", daemon=True).start()
    yield
