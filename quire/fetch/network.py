"""Connections that cannot be led astray: the address is checked, then that address is used.

A name is looked up once for each connection and the connection is made to the very address that
was judged, so that a second answer of the name server has no effect. Every read ends at the
deadline of the chunk it belongs to, however slowly bytes come in.
"""

import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpcore

from quire.errors import BadInput, FetchFailed, SourceRefused
from quire.fetch.items import Check, SourceOptions

_SLICE = 0.25  # seconds a blocked read goes without looking whether it was stopped
_Option = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(slots=True)
class Deadline:
    """The moment by which the present chunk must be here."""

    check: Check
    clock: Callable[[], float] = time.monotonic
    at: float = float("inf")

    def begin(self, seconds: float) -> None:
        """Give the next chunk its time."""
        self.at = self.clock() + seconds

    def left(self) -> float:
        """Return the seconds left, or raise when there are none."""
        self.check()
        if (left := self.at - self.clock()) <= 0:
            raise httpcore.ReadTimeout("the time for one chunk is over")
        return left


def is_public(address: str) -> bool:
    """Tell whether an address belongs to the public network and to one host."""
    found: _Address = ipaddress.ip_address(address.partition("%")[0])
    return all(each.is_global and not each.is_multicast for each in (found, *_inner(found)))


def is_allowed(address: str, options: SourceOptions) -> bool:
    """Tell whether a source may connect to an address."""
    if options.allow_private or is_public(address):
        return True
    found = ipaddress.ip_address(address.partition("%")[0])
    return any(found in ipaddress.ip_network(each) for each in options.allow_networks)


def _inner(address: _Address) -> list[_Address]:
    """Return the IPv4 addresses that an IPv6 address leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    inner: list[_Address | None] = [address.ipv4_mapped, address.sixtofour]
    inner += address.teredo or ()
    if address in _NAT64:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in inner if each is not None]


def addresses(host: str, port: int, options: SourceOptions) -> list[str]:
    """Look a host up and return the addresses that may be connected to."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"{host}: the name cannot be resolved ({error})") from error
    known = list(dict.fromkeys(str(each[4][0]) for each in found))
    allowed = [each for each in known if is_allowed(each, options)]
    if not allowed:
        raise SourceRefused(
            f"{host}: leads to a private address ({', '.join(known)}). Such addresses are refused "
            "unless QUIRE_FETCH_ALLOW_PRIVATE_ADDRESSES=true allows them."
        )
    return allowed


def require_allowed(url: str, options: SourceOptions) -> None:
    """Judge the host of an endpoint that a library of others will connect to."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"endpoint {url}: is not an http or https URL.")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        addresses(parts.hostname, port, options)
    except httpcore.ConnectError as error:
        raise FetchFailed(f"endpoint {url}: {error}.") from error


class GuardedBackend(httpcore.NetworkBackend):
    """Makes connections to judged addresses only, under a deadline."""

    def __init__(self, deadline: Deadline, options: SourceOptions) -> None:
        self._inner = httpcore.SyncBackend()
        self._deadline = deadline
        self._options = options

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[_Option] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first judged address that answers."""
        found = addresses(host, port, self._options)
        for number, address in enumerate(found, start=1):
            # One silent address must not use up the time of the others.
            patience = min(timeout or 30.0, self._deadline.left() / (len(found) - number + 1))
            try:
                stream = self._inner.connect_tcp(
                    address, port, patience, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if number == len(found):
                    raise
            else:
                return _TimedStream(stream, self._deadline)
        raise httpcore.ConnectError(f"{host}: no address answers")

    def sleep(self, seconds: float) -> None:
        """Wait; the pool asks for it only when it retries, which it does not."""
        time.sleep(seconds)


class _TimedStream(httpcore.NetworkStream):
    """A stream whose every operation ends at the deadline of the chunk."""

    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline
        # The pool asks by this name whether an idle connection was closed by the server.
        self.get_extra_info = inner.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what is there, looking up between slices of waiting."""
        while True:
            left = self._deadline.left()
            try:
                return self._inner.read(max_bytes, min(left, _SLICE))
            except httpcore.ReadTimeout:
                continue

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of it."""
        self._inner.write(buffer, self._deadline.left())

    def close(self) -> None:
        """Close the connection."""
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Secure the connection; the certificate is that of the name, not of the address."""
        secured = self._inner.start_tls(ssl_context, server_hostname, self._deadline.left())
        return _TimedStream(secured, self._deadline)
