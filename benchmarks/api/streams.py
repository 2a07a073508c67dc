"""Latency of events at an open stream, and the CPU time of many open streams."""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from benchmarks.api.server import Target, serving
from benchmarks.api.sizes import ApiSizes
from benchmarks.figures import Figure, at_most, percentile
from benchmarks.installation import Backend, Installation
from quire.errors import WorkerStartFailed
from quire.store.queue import events

NAME = "bench.event"


def latency(backend: Backend, sizes: ApiSizes) -> Iterator[Figure]:
    """Measure the time from the commit of an event to its arrival at an open stream."""
    with serving(backend) as target, Readers(target, 1) as readers:
        spans: list[float] = []
        for n in range(sizes.latencies):
            # Intervals that do not coincide with the server's polling.
            time.sleep(0.05 + 0.013 * (n % 20))
            committed = _commit_event(target.installation)
            target.installation.wait_for(lambda: readers.count > len(spans), "an event")
            spans.append((readers.last_at - committed) * 1e3)
    note = f"p95 of {len(spans)}, p50 {percentile(spans, 0.5):.0f} ms"
    yield Figure("event", percentile(spans, 0.95), "ms", target=at_most(500.0), note=note)


def cost(backend: Backend, sizes: ApiSizes) -> Iterator[Figure]:
    """Measure the share of a core that the API uses while events go to many open streams."""
    with serving(backend) as target, Readers(target, sizes.streams) as readers:
        idle = _share(target, sizes.stream_seconds / 2, lambda until: time.sleep(_left(until)))
        sent = 0

        def flow(until: float) -> None:
            nonlocal sent
            due = time.monotonic()
            while time.monotonic() < until:
                _commit_event(target.installation)
                sent += 1
                due += 1 / sizes.events_per_second
                time.sleep(_left(due))

        busy = _share(target, sizes.stream_seconds, flow)
        expected = sent * sizes.streams
        target.installation.wait_for(lambda: readers.count >= expected, "all events to arrive")
    flowed = f"{sent / sizes.stream_seconds:.0f} events/s, {expected:,} arrived"
    name = f"{sizes.streams} open streams"
    yield Figure(f"{name}, idle", idle, "% of a core")
    yield Figure(name, busy, "% of a core", target=at_most(20.0), note=flowed)


def _left(until: float) -> float:
    return max(until - time.monotonic(), 0.0)


def _share(target: Target, seconds: float, act: Callable[[float], None]) -> float:
    """Return the percent of a core that the server uses while `act` runs."""
    before, began = sum(target.program.cpu_times()[:2]), time.monotonic()
    act(began + seconds)
    spent = time.monotonic() - began
    return 100 * (sum(target.program.cpu_times()[:2]) - before) / spent


def _commit_event(installation: Installation) -> float:
    added = [events.Event(None, NAME, tenant=installation.app.settings.tenant)]
    installation.app.db.write(lambda conn, now: events.record(conn, added, now=now))
    return time.monotonic()


class Readers:
    """Open streams, read by one thread that counts the events."""

    def __init__(self, target: Target, count: int) -> None:
        self.count = 0
        self.last_at = 0.0
        self._is_over = False
        self._selector = selectors.DefaultSelector()
        parts = urlsplit(str(target.http.base_url))
        at = (parts.hostname or "", parts.port or 0)
        self._socks = [self._open(at) for _ in range(count)]
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> "Readers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        for sock in self._socks:
            sock.close()

    def _open(self, at: tuple[str, int]) -> socket.socket:
        sock = socket.create_connection(at, timeout=30)
        sock.sendall(f"GET /api/events HTTP/1.1\r\nHost: {at[0]}:{at[1]}\r\n\r\n".encode())
        head = b""
        while b"\nid: " not in head:
            piece = sock.recv(4096)
            head += piece
            if not piece or not head.startswith(b"HTTP/1.1 200"):
                raise WorkerStartFailed(f"bench: the API refused a stream: {head[:200]!r}")
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ)
        return sock

    def _read(self) -> None:
        mark = f'"name":"{NAME}"'.encode()
        while not self._is_over:
            for key, _ in self._selector.select(0.1):
                sock = key.fileobj
                if not isinstance(sock, socket.socket):
                    continue
                with contextlib.suppress(BlockingIOError):
                    found = sock.recv(1 << 20).count(mark)
                    self.last_at = time.monotonic() if found else self.last_at
                    self.count += found
