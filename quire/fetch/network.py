"""Network connections that are safe against SSRF and DNS rebinding, with a deadline.

A host is resolved once per connection, the address is checked, and the connection is made to that
same address, so a second DNS answer has no effect. Every read ends at the deadline of its chunk,
however slowly bytes arrive. Which addresses are public is written down here: the tables of the
interpreter change with its patch releases.
"""

import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpcore

from quire import log
from quire.errors import BadInput, FetchFailed, SourceRefused
from quire.fetch.items import Check, SourceOptions

_SLICE = 0.25  # seconds between two checks for a stop during a blocked read
_Option = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: IPv4 that is not public: the special ranges of IANA, multicast, and hosts of clouds.
_SPECIAL_IPV4 = [ipaddress.IPv4Network(each) for each in (
    "0.0.0.0/8",         # this network
    "10.0.0.0/8",        # private
    "100.64.0.0/10",     # shared by customers of a provider; metadata of Alibaba
    "127.0.0.0/8",       # loopback
    "168.63.129.16/32",  # the host of a virtual machine in Azure
    "169.254.0.0/16",    # link-local; metadata of most clouds
    "172.16.0.0/12",     # private
    "192.0.0.0/24",      # assignments of the IETF; metadata of Oracle's cloud
    "192.0.2.0/24",      # documentation
    "192.88.99.0/24",    # relays of 6to4, deprecated
    "192.168.0.0/16",    # private
    "198.18.0.0/15",     # benchmarks
    "198.51.100.0/24",   # documentation
    "203.0.113.0/24",    # documentation
    "224.0.0.0/4",       # multicast
    "240.0.0.0/4",       # reserved, broadcast
)]  # fmt: skip
#: IPv6 that is public is inside the first range and outside the others.
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
_SPECIAL_IPV6 = [ipaddress.IPv6Network(each) for each in (
    "2001::/23",      # assignments of the IETF: Teredo, ORCHID, benchmarks
    "2001:db8::/32",  # documentation
    "3fff::/20",      # documentation
)]  # fmt: skip
#: Ranges whose addresses are IPv4 addresses in another form, and how far they are shifted. They
#: are as public as that address. The prefix 64:ff9b:1::/48 for NAT64 is not among them: where an
#: address stands in it is the choice of an operator, so all of it is refused.
_IPV4_AT = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # mapped: the kernel connects by IPv4
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
)
#: The upper half of the interface identifier of ISATAP; the lower half is an IPv4 address.
_ISATAP = (0x00005EFE, 0x02005EFE)


@dataclass(slots=True)
class Deadline:
    """When the current chunk must have arrived."""

    check: Check
    clock: Callable[[], float] = time.monotonic
    at: float = float("inf")

    def begin(self, seconds: float) -> None:
        """Start the time limit of the next chunk."""
        self.at = self.clock() + seconds

    def left(self) -> float:
        """Return the seconds left, or raise when time is up."""
        self.check()
        if (left := self.at - self.clock()) <= 0:
            raise httpcore.ReadTimeout("one chunk took too long")
        return left


def is_public(address: str) -> bool:
    """Tell whether an address is a public unicast address."""
    found: _Address = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return not any(found in each for each in _SPECIAL_IPV4)
    for form, shift in _IPV4_AT:
        if found in form:
            return _is_public_ipv4(int(found) >> shift) and not _is_private_isatap(found)
    if found not in _GLOBAL_IPV6 or any(found in each for each in _SPECIAL_IPV6):
        return False
    return not _is_private_isatap(found)


def _is_public_ipv4(bits: int) -> bool:
    return is_public(str(ipaddress.IPv4Address(bits & 0xFFFFFFFF)))


def _is_private_isatap(address: ipaddress.IPv6Address) -> bool:
    is_isatap = int(address) >> 32 & 0xFFFFFFFF in _ISATAP
    return is_isatap and not _is_public_ipv4(int(address))


def is_allowed(address: str, options: SourceOptions) -> bool:
    """Tell whether a source may connect to an address."""
    if options.allow_private or is_public(address):
        return True
    found = ipaddress.ip_address(address.partition("%")[0])
    return any(found in ipaddress.ip_network(each) for each in options.allow_networks)


def resolve(host: str, port: int, options: SourceOptions) -> list[str]:
    """Resolve a host and return the addresses that may be connected to.

    A name that does not exist is refused for good; other failures may be temporary.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        # Not EAI_AGAIN: then the name server did not answer, and may later.
        is_unknown = isinstance(error, UnicodeError) or error.errno == socket.EAI_NONAME
        if is_unknown and options.is_discreet:
            log.event("fetch.refused", level="warning", host=host, error=str(error))
            raise _discreet(host) from None
        if is_unknown:
            raise SourceRefused(
                f"{host}: there is no such host ({error}). Check the spelling of the URL."
            ) from error
        raise httpcore.ConnectError(f"{host}: the name cannot be resolved ({error})") from error
    known = list(dict.fromkeys(str(each[4][0]) for each in found))
    is_granted = not options.allow_hosts.isdisjoint((_shown(host), f"{_shown(host)}:{port}"))
    allowed = [each for each in known if is_granted or is_allowed(each, options)]
    if not allowed and options.is_discreet:
        log.event("fetch.refused", level="warning", host=host, addresses=",".join(known))
        raise _discreet(host)
    if not allowed:
        raise SourceRefused(
            f"{host}: resolves to a private address ({', '.join(known)}). Private addresses are "
            "refused unless QUIRE_FETCH_ALLOW_PRIVATE_ADDRESSES=true."
        )
    return allowed


def _discreet(host: str) -> SourceRefused:
    """Return the one error for a host that does not exist or is not public, as members read it."""
    return SourceRefused(
        f"{host}: there is no public host of this name. Check the spelling of the URL, or ask the "
        f"operator for a grant: quire source allow host:{host}"
    )


def _shown(host: str) -> str:
    """Return a host as a grant names it."""
    name = host.lower().rstrip(".")
    return f"[{name}]" if ":" in name else name


def require_allowed(url: str, options: SourceOptions) -> None:
    """Check the host of an endpoint that a third-party library connects to."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"endpoint {url}: is not an http or https URL.")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        resolve(parts.hostname, port, options)
    except httpcore.ConnectError as error:
        raise FetchFailed(f"endpoint {url}: {error}.") from error


class GuardedBackend(httpcore.NetworkBackend):
    """Connects to allowed addresses only, under a deadline."""

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
        """Connect to the first allowed address that accepts."""
        found = resolve(host, port, self._options)
        for number, address in enumerate(found, start=1):
            # An unresponsive address must not use up the time of the others.
            share = min(timeout or 30.0, self._deadline.left() / (len(found) - number + 1))
            try:
                stream = self._inner.connect_tcp(
                    address, port, share, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if number == len(found):
                    raise
            else:
                return _TimedStream(stream, self._deadline)
        raise httpcore.ConnectError(f"{host}: no address answers")

    def sleep(self, seconds: float) -> None:
        """Sleep; required by the interface, unused because the pool never retries."""
        time.sleep(seconds)


class _TimedStream(httpcore.NetworkStream):
    """A stream whose operations all end at the deadline of the chunk."""

    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline
        # The pool uses this to find out whether the server closed an idle connection.
        self.get_extra_info = inner.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what has arrived; checks for a stop while waiting."""
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
        """Start TLS; the certificate is checked against the host name, not the address."""
        secured = self._inner.start_tls(ssl_context, server_hostname, self._deadline.left())
        return _TimedStream(secured, self._deadline)
