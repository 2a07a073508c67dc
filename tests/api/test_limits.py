"""Limits that hold before anybody has signed in: bodies, connections, labels of metrics."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from quire.api import upload_slots
from quire.api.auth.authenticate import CorpusReader
from quire.api.body_limits import BodyLimitMiddleware
from quire.api.routes import uploads
from quire.control import tenants
from quire.web import header_timeout
from tests import signing
from tests.api.house import House, sailing_book
from tests.api.serving import Served, served, stream
from tests.waiting import until


@pytest.fixture
def at(home: Path) -> Iterator[Served]:
    with served(home=home, api_auth=True) as running:
        yield running


def token(at: Served) -> str:
    return signing.by_token(at.api, "member").headers["Authorization"]


@contextlib.contextmanager
def begun(at: Served, *headers: str, body: bytes = b"{") -> Iterator[socket.socket]:
    """Send the headers of a large request and the first bytes of its body, and no more."""
    parts = urlsplit(at.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as sock:
        lines = ("POST /api/jobs HTTP/1.1", "Host: localhost", "Content-Type: application/json",
                 "Content-Length: 1000000", *headers)  # fmt: skip
        sock.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        yield sock


def answer(sock: socket.socket) -> bytes:
    """Read until the server closes the connection or has answered."""
    got = b""
    while b"\r\n\r\n" not in got and (piece := sock.recv(65536)):
        got += piece
    return got


@pytest.mark.parametrize("headers", [(), ("Authorization: Bearer quire_wrong",),
                                     ("Cookie: quire_session=wrong",)])  # fmt: skip
def test_the_body_of_nobody_is_not_waited_for(at: Served, headers: tuple[str, ...]):
    with begun(at, *headers) as sock:
        assert answer(sock).startswith(b"HTTP/1.1 401")


def test_a_body_that_trickles_is_answered_late_and_never_held(
    at: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(BodyLimitMiddleware, "seconds", 0.3)
    with begun(at, f"Authorization: {token(at)}") as sock:
        assert answer(sock).startswith(b"HTTP/1.1 408")


def test_the_rest_of_an_answered_body_is_not_waited_for_either(
    at: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(header_timeout.HeaderTimeoutProtocol, "header_seconds", 0.3)
    with begun(at) as sock:
        assert answer(sock).startswith(b"HTTP/1.1 401")
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(65536):
                pass


def test_a_body_in_time_is_read_whole(at: Served):
    body = json.dumps({"kind": "errand", "payload": {"x": "y" * 300_000}})
    made = httpx.post(f"{at.url}/api/jobs", content=body, headers={
        "Authorization": token(at), "Content-Type": "application/json"})  # fmt: skip
    assert made.status_code != 408
    assert made.status_code < 500


def test_one_address_has_a_quarter_of_the_connections_and_gets_it_back(home: Path):
    with served(home=home, api_max_connections=12) as at, contextlib.ExitStack() as opened:
        at.http.close()

        def status() -> int:
            with httpx.Client(base_url=at.url) as client:
                return client.get("/healthz").status_code

        kept = [opened.enter_context(httpx.Client(base_url=at.url)) for _ in range(3)]
        until(lambda: [each.get("/healthz").status_code for each in kept] == [200] * 3)
        assert status() == 503
        kept[0].close()
        until(lambda: status() == 200)
        at.http = httpx.Client(base_url=at.url)


def test_methods_and_paths_of_clients_are_no_labels_of_metrics(house: House):
    for number in range(50):
        house.stranger.request(f"M{number}", f"/nowhere/{number}")
        house.stranger.request(f"M{number}", "/api/jobs")
    text = house.operator.get("/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("quire_http_requests_total")]
    assert not any('method="M' in line or "/nowhere" in line for line in lines)
    assert any('method="other",route="unknown",status="404"' in line for line in lines)


def test_slow_uploads_of_one_user_do_not_keep_others_from_uploading(house: House):
    mallory, victim, foreigner = house.member, house.admin, house.foreigner
    authorization = mallory.headers["Authorization"]
    with house.served() as port, contextlib.ExitStack() as opened:
        for number in range(2 * upload_slots.IN_ALL):
            sock = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.sendall(
                f"POST /api/documents?name={number}.txt HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: {authorization}\r\nContent-Length: 50000\r\n\r\nx".encode()
            )
        until(lambda: len(house.parts()) >= upload_slots.OF_USER, what=house.parts)
        for client in (victim, foreigner):
            made = httpx.post(
                f"http://127.0.0.1:{port}/api/documents?name=v.txt", content=b"words",
                headers={"Authorization": client.headers["Authorization"]}, timeout=60,
            )  # fmt: skip
            assert made.status_code == 201, made.text
    until(lambda: house.parts() == [], what=house.parts)


def test_an_upload_that_trickles_is_given_up_with_the_reason(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(uploads, "RATE_SECONDS", 0.3)
    got: list[bytes] = []
    with house.served() as port, socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(
            f"POST /api/documents?name=a.txt HTTP/1.1\r\nHost: localhost\r\nAuthorization: "
            f"{house.member.headers['Authorization']}\r\nContent-Length: 50000\r\n\r\n".encode()
        )
        sock.settimeout(0.05)

        def is_answered() -> bool:
            with contextlib.suppress(TimeoutError):
                got.append(sock.recv(65536))
                return True
            sock.sendall(b"x")
            return False

        until(is_answered)
    assert b" 422 " in got[0]
    assert b"slower than 10,000 bytes a second" in got[0]


def test_only_an_instance_admin_pauses_kinds_for_all(house: House):
    for client in (house.foreigner, house.admin):
        refused = client.post("/api/kinds/noop/pause")
        assert refused.status_code == 403
        assert "it needs the role instance-admin" in refused.json()["detail"]
    abroad = signing.by_token(house.api, "instance-admin", tenant="other")
    for client in (house.operator, abroad):
        assert client.post("/api/kinds/noop/pause").json()["paused"]


def test_streams_of_one_tenant_leave_half_to_others(home: Path):
    with served(home=home, api_max_streams=8, api_auth=True) as at, contextlib.ExitStack() as kept:
        tokens = [signing.by_token(at.api, "member", user=f"m{n}").headers for n in range(3)]
        for n in range(4):
            kept.enter_context(
                stream(at, headers={"Authorization": tokens[n // 2]["Authorization"]})
            )
        refused = at.http.get("/api/events", headers={"Authorization": tokens[2]["Authorization"]})
        assert refused.status_code == 429
        assert "your tenant has 4 streams" in refused.json()["detail"]
        other = signing.by_token(at.api, "member", tenant="other").headers["Authorization"]
        with stream(at, headers={"Authorization": other}):
            pass


def test_a_tenant_past_its_limits_is_told_which_and_how_much(house: House):
    caller = house.shelf.app.caller
    house.upload("one.txt", b"words")
    used = tenants.shown(caller, "default")["used"]
    tenants.change(caller, "default", {"bytes": used["bytes"] + 3})
    refused = house.member.post("/api/documents?name=b.txt", content=b"more words")
    assert refused.status_code == 413
    assert f"limit is {used['bytes'] + 3:,} bytes" in refused.json()["detail"]
    tenants.change(caller, "default", {"bytes": 0, "documents": 1})
    refused = house.member.post("/api/documents?name=b.txt", content=b"more words")
    assert (refused.status_code, "1 documents" in refused.text) == (413, True)
    tenants.change(caller, "default", {"documents": 0, "jobs": 1})
    house.submit()
    refused = house.admin.post("/api/jobs", json={"kind": "errand"})
    assert (refused.status_code, "1 unfinished jobs" in refused.text) == (429, True)
    assert house.foreigner.post("/api/jobs", json={"kind": "errand"}).status_code == 201
    assert house.parts() == []


def test_a_document_past_the_limit_of_pages_fails_with_the_reason(house: House):
    house.upload("one.pdf", sailing_book())
    tenants.change(house.shelf.app.caller, "default", {"pages": 3})
    document = house.upload("two.txt", b"words")
    shown = house.member.get(f"/api/documents/{document}").json()
    assert shown["state"] == "failed"
    assert "its limit is 3 pages, and 3 are used" in shown["error"]


def test_requests_past_the_limit_of_a_day_are_refused_until_midnight(house: House):
    tenants.change(house.shelf.app.caller, "default", {"requests": 5})
    answers = [house.member.get("/api/jobs") for _ in range(8)]
    assert [each.status_code for each in answers] == [200] * 5 + [429] * 3
    assert "5 requests a day, and 5 are used" in answers[-1].json()["detail"]
    assert int(answers[-1].headers["Retry-After"]) <= 86_400
    assert house.foreigner.get("/api/jobs").status_code == 200


def test_the_operator_sees_the_limits_of_all_tenants(house: House):
    tenants.change(house.shelf.app.caller, "acme", {"documents": 7})
    [acme] = [
        each
        for each in house.operator.get("/api/tenants").json()["items"]
        if each["name"] == "acme"
    ]
    assert acme["limits"]["documents"] == 7


def test_a_job_that_costs_next_to_nothing_would_go_before_all_others_and_is_refused(house: House):
    for cost in (1e-300, 0.0, 0.99):
        refused = house.member.post("/api/jobs", json={"kind": "errand", "cost": cost})
        assert refused.status_code == 422, refused.text
        assert "cost" in refused.text
    assert house.member.post("/api/jobs", json={"kind": "errand", "cost": 1}).status_code == 201


def test_requests_whose_clients_have_gone_are_dropped_when_their_turn_comes(house: House):
    """With real sockets. One request of the tenant holds its turn until the others have gone."""
    turns = house.api.state.app_state.turns
    both = (house.member, house.foreigner)
    member, foreigner = (str(each.headers["Authorization"]) for each in both)
    held, may_go_on = threading.Event(), threading.Event()

    def hold(caller: CorpusReader) -> str:
        held.set()
        assert may_go_on.wait(30)
        return caller.tenant

    house.api.add_api_route("/api/hold", hold)
    with house.served() as port, ThreadPoolExecutor() as pool:
        url = f"http://127.0.0.1:{port}"
        for whose in (member, foreigner):  # so that two tenants ask, and are known
            assert httpx.get(f"{url}/api/me", headers={"Authorization": whose}).is_success
        first = pool.submit(
            httpx.get, f"{url}/api/hold", headers={"Authorization": member}, timeout=60
        )
        assert held.wait(30)
        socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        for sock in socks:
            lines = ("GET /api/jobs HTTP/1.1", "Host: localhost", f"Authorization: {member}")
            sock.sendall("\r\n".join([*lines, "", ""]).encode())
        until(lambda: sum(map(len, turns._waiting.values())) == 20, what="they do not wait")
        for sock in socks:
            sock.close()
        live = pool.submit(httpx.get, f"{url}/api/me", headers={"Authorization": member})
        until(lambda: sum(map(len, turns._waiting.values())) == 21, what="it does not wait")
        may_go_on.set()
        assert (first.result().json(), live.result().status_code) == ("default", 200)
    shown = house.operator.get("/metrics").text
    [counted] = re.findall(r'requests_total\{[^}]*"/api/jobs"[^}]*"503"[^}]*\} (\d+)', shown)
    assert int(counted) == 20
