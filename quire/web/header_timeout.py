"""Cuts off a client that begins a request and does not finish its headers."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds from the first byte of a request, or from the connection, to the end of its headers.
HEADER_SECONDS = 10.0
_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class PatientProtocol(H11Protocol):
    """One connection; it waits for headers, but not for ever."""

    header_seconds = HEADER_SECONDS
    _late_at: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Stop waiting once the headers are there; begin again with the next request."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._late_at is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Go on with what came meanwhile; a request that is only begun has its own time."""
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._wait()

    def _wait(self) -> None:
        self._stop_waiting()
        self._late_at = self.loop.call_later(self.header_seconds, self._cut)

    def _stop_waiting(self) -> None:
        if self._late_at is not None:
            self._late_at.cancel()
            self._late_at = None

    def _cut(self) -> None:
        transport: Any = self.transport
        if not transport.is_closing():
            transport.write(_LATE)
            transport.close()
