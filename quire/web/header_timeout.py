"""Close connections that hold a place and do nothing with it.

A client has to finish the headers of a request in time, and the rest of a body that was answered
already. Connections above the caps are refused before a byte of them is read.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from quire.web.connection_caps import ConnectionCaps

#: Seconds from the first byte of a request, or from the connection, to the end of its headers.
HEADER_SECONDS = 10.0
_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n"
    b"Content-Length: 0\r\n\r\n"
)


class HeaderTimeoutProtocol(H11Protocol):
    """One connection with a timeout for request headers."""

    header_seconds = HEADER_SECONDS
    _timer: asyncio.TimerHandle | None = None
    _admitted: str | None = None

    def __init__(self, *args: Any, caps: ConnectionCaps, **how: Any) -> None:
        super().__init__(*args, **how)
        self._caps = caps

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer, or refuse the connection."""
        super().connection_made(transport)
        address = self.client[0] if self.client else "unknown"
        if not self._caps.admit(address):
            transport.write(_FULL)
            transport.close()
            return
        self._admitted = address
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Stop the timer once the headers are complete; restart it with the next request."""
        if self._admitted is None:
            return
        super().data_received(data)
        if self._is_answered():
            return
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._timer is None:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        if self._admitted is not None:
            self._caps.leave(self._admitted)
            self._admitted = None
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Start the timer for headers that are incomplete, or the rest of an answered body."""
        super().on_response_complete()
        is_begun = self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]
        if is_begun or self._is_answered():
            self._start_timer()

    def _is_answered(self) -> bool:
        """Tell whether a body still arrives whose request has its response."""
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.header_seconds, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        transport: Any = self.transport
        if not transport.is_closing():
            if not self._is_answered():
                transport.write(_LATE)
            transport.close()
