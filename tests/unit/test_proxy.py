"""The proxy of the tests does the harm it is told to, and none else."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.proxy import DOWN, UP, Proxy
from tests.waiting import stays, until


class Echo:
    """A server that answers each piece with the same, and remembers what it got."""

    def __init__(self) -> None:
        self.got = b""
        self.ear = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.ear.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(
                    target=self._answer, args=(self.ear.accept()[0],), daemon=True
                ).start()

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while piece := client.recv(1000):
                self.got += piece
                client.sendall(piece)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.ear.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.address) as made:
        yield made


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(proxy.address, timeout=10) as made:
        until(lambda: proxy.lines)
        yield made


def hears_nothing(client: socket.socket) -> bool:
    client.settimeout(0.3)
    try:
        client.recv(1000)
    except TimeoutError:
        return True
    finally:
        client.settimeout(10)
    return False


def said(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(1000)


def test_without_harm_everything_passes(client: socket.socket):
    assert said(client, b"hello") == b"hello"


def test_a_client_that_leaves_is_forgotten(proxy: Proxy, client: socket.socket):
    assert said(client, b"x") == b"x"
    client.close()
    until(lambda: proxy.lines == [])


def test_a_delay_holds_both_directions_back(proxy: Proxy, client: socket.socket):
    proxy.delay(0.2)
    began = time.monotonic()
    assert said(client, b"hello") == b"hello"
    assert time.monotonic() - began >= 0.4


def test_what_is_dropped_arrives_once_it_is_healed(proxy: Proxy, client: socket.socket, echo: Echo):
    proxy.drop()
    client.sendall(b"hello")
    assert hears_nothing(client)
    assert echo.got == b""
    proxy.heal()
    assert client.recv(1000) == b"hello"


def test_who_connects_to_a_black_hole_is_let_in_and_not_answered(proxy: Proxy):
    proxy.drop()
    with socket.create_connection(proxy.address, timeout=10) as late:
        late.sendall(b"hello")
        assert hears_nothing(late)
        proxy.heal()
        assert late.recv(1000) == b"hello"


def test_half_open_towards_the_server_loses_the_reply(
    proxy: Proxy, client: socket.socket, echo: Echo
):
    proxy.half_open(UP)
    client.sendall(b"hello")
    until(lambda: echo.got == b"hello")
    assert hears_nothing(client)


def test_half_open_towards_the_client_loses_the_request(
    proxy: Proxy, client: socket.socket, echo: Echo
):
    proxy.half_open(DOWN)
    client.sendall(b"hello")
    assert stays(lambda: echo.got == b"", during=0.3)


def test_a_cut_is_a_reset_and_the_next_connection_is_fine(proxy: Proxy, client: socket.socket):
    assert said(client, b"x") == b"x"
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1000)
    with socket.create_connection(proxy.address, timeout=10) as second:
        assert said(second, b"hello") == b"hello"


def test_one_that_refuses_resets_all_until_it_is_healed(proxy: Proxy, client: socket.socket):
    proxy.refuse()
    with pytest.raises(ConnectionResetError):
        client.recv(1000)
    with (
        pytest.raises(ConnectionResetError),
        socket.create_connection(proxy.address, timeout=10) as second,
    ):
        second.recv(1000)
    proxy.heal()
    with socket.create_connection(proxy.address, timeout=10) as third:
        assert said(third, b"hello") == b"hello"


def test_a_swallowed_reply_belongs_to_a_request_that_arrived(
    proxy: Proxy, client: socket.socket, echo: Echo
):
    rule = proxy.swallow(b"COMMIT\0", after=b"effects")
    assert said(client, b"COMMIT\0") == b"COMMIT\0"  # nothing of `effects` before it
    assert said(client, b"INSERT INTO eff") + said(client, b"ects\0") == b"INSERT INTO effects\0"
    client.sendall(b"COMMIT\0")
    with pytest.raises(ConnectionResetError):
        client.recv(1000)
    assert rule.fired.is_set()
    assert echo.got.endswith(b"COMMIT\0")


def test_a_rule_is_for_one_unit_between_commits_and_applies_once(
    proxy: Proxy, client: socket.socket
):
    rule = proxy.swallow(b"COMMIT\0", after=b"effects")
    said(client, b"effects ROLLBACK\0")
    assert said(client, b"COMMIT\0") == b"COMMIT\0"
    assert not rule.fired.is_set()
    client.sendall(b"effects COMMIT\0")
    until(rule.fired.is_set)
    with socket.create_connection(proxy.address, timeout=10) as second:
        assert said(second, b"effects COMMIT\0") == b"effects COMMIT\0"


def test_a_request_that_is_cut_does_not_arrive(proxy: Proxy, client: socket.socket, echo: Echo):
    proxy.cut_at(b"COMMIT\0")
    client.sendall(b"COMMIT\0")
    with pytest.raises(ConnectionResetError):
        client.recv(1000)
    assert echo.got == b""
