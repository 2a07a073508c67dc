"""A TCP proxy that harms what passes through it: delay, drop, half-open, cut, swallow.

It listens on an address of its own and forwards to a TCP address or a UNIX socket. A pair of
threads carries the bytes of each connection. What a fault keeps back is forwarded by `heal`, as
a network that comes back would by sending again; only `cut` and `swallow` lose bytes.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

Address = tuple[str, int] | Path
UP, DOWN = "up", "down"  # towards the server, towards the client

_RESET = struct.pack("ii", 1, 0)  # close() then sends RST instead of FIN
_REMEMBERED = 1 << 20


class Rule:
    """What to do with the first request that matches; `fired` tells that it was met."""

    def __init__(self, at: bytes, after: bytes, act: Callable[[Line], None]) -> None:
        self.at = at
        self.after = after
        self.act = act
        self.fired = threading.Event()

    def matches(self, unit: bytes) -> bool:
        """Tell whether a unit of requests holds `after`, and behind it `at`."""
        place = unit.find(self.after)
        return place >= 0 and unit.find(self.at, place + len(self.after)) >= 0


class Line:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.ends = {UP: (client, server), DOWN: (server, client)}
        self.closed = {UP: False, DOWN: False}
        self.is_swallowing = False
        self.is_cut = False
        self.is_mute = False
        self.said = b""
        self._unit = b""
        for way in (UP, DOWN):
            threading.Thread(target=self._carry, args=(way,), daemon=True).start()

    def cut(self) -> None:
        """End it by a reset to both sides."""
        self.is_cut = True
        for end in self.ends[UP]:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # A thread that reads from it keeps it open: this wakes it.
                end.shutdown(socket.SHUT_RD)
            end.close()
        self.proxy.forget(self)

    def swallow(self) -> None:
        """Forward the request, and end the connection instead of forwarding its reply."""
        self.is_swallowing = True

    def mute(self) -> None:
        """Lose every reply from now on."""
        self.is_mute = True

    def _carry(self, way: str) -> None:
        source, sink = self.ends[way]
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                if way == UP:
                    self._watch(piece)
                elif self.is_swallowing:
                    self.cut()
                    return
                elif self.is_mute:
                    continue
                self.proxy.let_through(way)
                sink.sendall(piece)
            self.proxy.let_through(way)
            if self.is_cut:  # a goodbye would come before the reset
                return
            sink.shutdown(socket.SHUT_WR)
        self.closed[way] = True
        if all(self.closed.values()):
            for end in self.ends[UP]:
                end.close()
            self.proxy.forget(self)

    def _watch(self, piece: bytes) -> None:
        """Follow the requests since the last COMMIT or ROLLBACK, and apply the first rule met."""
        self._unit = (self._unit + piece)[-_REMEMBERED:]
        self.said = (self.said + piece)[-_REMEMBERED:]
        for rule in list(self.proxy.rules):
            if rule.matches(self._unit):
                self.proxy.rules.remove(rule)
                rule.act(self)
                rule.fired.set()
                break
        last = max(self._unit.rfind(word) for word in (b"COMMIT\0", b"ROLLBACK\0"))
        if last >= 0:
            self._unit = self._unit[last + 1 :]


class Proxy:
    """Listens at `address`, forwards to `target`, and does harm on command."""

    def __init__(self, target: Address, host: str = "127.0.0.1", port: int = 0) -> None:
        self.target = target
        self.rules: list[Rule] = []
        self.lines: list[Line] = []
        self._blocked: set[str] = set()
        self._delay = 0.0
        self._is_refusing = False
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._ear = socket.create_server((host, port), backlog=128)
        self.address: tuple[str, int] = self._ear.getsockname()[:2]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self._ear.shutdown(socket.SHUT_RDWR)
        self._ear.close()
        self.heal()
        self.cut()

    # ------------------------------------------------------------------ harm

    def delay(self, seconds: float) -> None:
        """Hold each piece back for some time, in both directions."""
        self._delay = seconds

    def drop(self) -> None:
        """Forward nothing more, and say nothing: also to who connects from now on."""
        self._block(UP, DOWN)

    def half_open(self, way: str) -> None:
        """Forward in one direction only."""
        self._block(DOWN if way == UP else UP)

    def cut(self) -> None:
        """Reset every connection; new ones are let in."""
        for line in list(self.lines):
            line.cut()

    def refuse(self) -> None:
        """Reset every connection, and those to come."""
        self._is_refusing = True
        self.cut()

    def swallow(self, at: bytes, after: bytes = b"") -> Rule:
        """Lose the reply to the first request `at` behind an `after`, and cut its connection."""
        return self._rule(Rule(at, after, Line.swallow))

    def cut_at(self, at: bytes, after: bytes = b"") -> Rule:
        """Cut the connection of such a request before it is forwarded."""
        return self._rule(Rule(at, after, Line.cut))

    def drop_at(self, at: bytes, after: bytes = b"") -> Rule:
        """Forward nothing more of anybody from such a request on."""
        return self._rule(Rule(at, after, lambda line: self.drop()))

    def heal(self) -> None:
        """Forward everything again, what was held back first."""
        with self._changed:
            self._blocked = set()
            self._delay = 0.0
            self._is_refusing = False
            self._changed.notify_all()

    def that_said(self, words: bytes) -> list[Line]:
        """List the connections whose client said this."""
        return [line for line in list(self.lines) if words in line.said]

    # ------------------------------------------------------------------ inside

    def _rule(self, rule: Rule) -> Rule:
        self.rules.append(rule)
        return rule

    def _block(self, *ways: str) -> None:
        with self._changed:
            self._blocked = set(ways)

    def let_through(self, way: str) -> None:
        """Wait as long as the present harm says."""
        if self._delay:
            self._ended.wait(self._delay)
        with self._changed:
            self._changed.wait_for(lambda: way not in self._blocked)

    def forget(self, line: Line) -> None:
        """Drop a connection that has ended."""
        with contextlib.suppress(ValueError):
            self.lines.remove(line)

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client = self._ear.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self.let_through(UP)
        if self._is_refusing or self._ended.is_set():
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
            return
        try:
            server = self._reach()
        except OSError:
            client.close()
            return
        self.lines.append(Line(self, client, server))

    def _reach(self) -> socket.socket:
        if isinstance(self.target, Path):
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            server.connect(str(self.target))
            return server
        return socket.create_connection(self.target, timeout=None)
