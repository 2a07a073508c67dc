"""The server itself: ids of requests, its log, odd clients, its end, and `quire up` around it."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import APIRouter, FastAPI

from quire import log
from quire.api import app as frame
from quire.app import App
from quire.errors import BadInput, Refused
from quire.settings import load
from quire.web import header_timeout, server
from tests.api.serving import Served, served
from tests.integration.processes import Site
from tests.waiting import until


@pytest.fixture
def at(home: Path) -> Iterator[Served]:
    with served(home=home) as running:
        yield running


@pytest.fixture
def embedded(home: Path) -> Iterator[Site]:
    """A home for real processes on SQLite."""
    site = Site(home)
    yield site.prepare()
    site.close()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log of this process."""
    logger = logging.getLogger("quire")
    logger.propagate = True
    logger.setLevel("DEBUG")
    caplog.set_level("DEBUG", "quire")
    return caplog


def test_every_answer_names_its_request_and_the_log_does_too(
    at: Served, lines: pytest.LogCaptureFixture
):
    answer = at.http.get("/api/jobs", headers={"X-Request-Id": "mine.1"})
    assert answer.headers["X-Request-Id"] == "mine.1"
    made = at.http.get("/api/jobs/99").headers["X-Request-Id"]
    until(lambda: len([r for r in lines.records if r.message == "http"]) >= 2)
    told = [r.fields for r in lines.records if r.message == "http"]  # type: ignore[attr-defined]
    assert told[0]["request"] == "mine.1"
    assert told[1] | {"ms": 0} == {
        "request": made, "method": "GET", "path": "/api/jobs/99", "status": 404, "ms": 0,
    }  # fmt: skip


@pytest.mark.parametrize("given", ["a b", "x" * 65, "<script>", "é"])
def test_an_odd_id_of_a_request_is_replaced(at: Served, given: str):
    answer = at.http.get("/healthz", headers={b"X-Request-Id": given.encode()})
    assert answer.headers["X-Request-Id"] != given
    assert len(answer.headers["X-Request-Id"]) == 16


def test_a_sign_in_link_is_not_logged(at: Served, lines: pytest.LogCaptureFixture):
    at.http.get("/sign-in/SECRET")
    until(lambda: [r for r in lines.records if r.message == "http"])
    assert "SECRET" not in repr([r.__dict__ for r in lines.records])


def test_fields_that_are_bound_are_in_every_line_of_the_block(lines: pytest.LogCaptureFixture):
    with log.bound(request="r"):
        log.event("inside", job=1)
    log.event("outside")
    fields = [r.fields for r in lines.records]  # type: ignore[attr-defined]
    assert fields == [{"request": "r", "job": 1}, {}]


def test_a_fault_of_ours_is_a_problem_with_id_and_headers(home: Path):
    router = APIRouter()

    @router.get("/fault")
    def fault() -> None:
        raise ZeroDivisionError("internal secret")

    app = App(load({}, home=home, api_auth=False))
    api: FastAPI = frame.create_api(app, router)
    running = Served(app, api=api).start()
    answer = running.http.get("/fault")
    running.stop()
    app.close()
    assert answer.status_code == 500
    assert answer.headers["X-Request-Id"]
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "Content-Security-Policy" in answer.headers
    assert "secret" not in answer.text


def test_a_client_that_never_finishes_its_headers_is_cut(
    at: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(header_timeout.HeaderTimeoutProtocol, "header_seconds", 0.3)
    for begun in (b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "):
        with _connected(at) as sock:
            sock.sendall(begun)
            assert sock.recv(100).startswith(b"HTTP/1.1 408")
            assert sock.recv(100) == b""


def test_the_second_request_of_a_connection_has_to_be_finished_too(
    at: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(header_timeout.HeaderTimeoutProtocol, "header_seconds", 0.3)
    with _connected(at) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        sock.sendall(b"GET /healthz HT")
        rest = b""
        while part := sock.recv(4096):
            rest += part
        assert b"HTTP/1.1 408" in rest


def test_a_port_in_use_is_said_plainly(at: Served):
    port = urlsplit(at.url).port or 0
    with pytest.raises(Refused, match=r"another program is using it.*QUIRE_API_PORT"):
        server.bound("127.0.0.1", port)
    with pytest.raises(Refused, match="does not have that address"):
        server.bound("203.0.113.1", 0)


def test_it_does_not_listen_to_others_without_authentication(home: Path):
    with pytest.raises(BadInput, match="QUIRE_API_AUTH"):
        server.run(load({}, home=home, api_auth=False, api_host="0.0.0.0"))  # noqa: S104


def test_quire_api_serves_and_leaves_on_a_signal(embedded: Site):
    api = embedded.start("api", api_auth=False)
    url = _url(embedded, api)
    assert httpx.get(f"{url}/readyz").status_code == 200
    assert api.leave() == 0
    assert api.logs("api.stopped")


def test_the_first_start_prints_a_link_that_signs_in_once(embedded: Site):
    api = embedded.start("api")
    _url(embedded, api)
    [line] = until(lambda: api.logs("Sign in"))
    link = line.rpartition(" ")[2]
    assert "/sign-in/" in link
    assert httpx.get(link).status_code == 200
    assert httpx.get(urlsplit(link)._replace(path="/api/jobs").geturl()).status_code == 401
    api.leave()


def test_up_runs_the_api_and_restarting_it_disturbs_no_job(embedded: Site):
    up = embedded.start("up", api_auth=False)
    url = _url(embedded, up)
    job_id = embedded.submit("i.gated", tag="a")
    until(lambda: embedded.job(job_id).state == "running", what=lambda: up.log)
    [child] = [each for each in up.children() if each.cmdline()[-1:] == ["api"]]
    child.kill()
    until(lambda: len(up.logs("api.started")) == 2, what=lambda: up.log)
    assert httpx.get(f"{_url(embedded, up)}/api/jobs/{job_id}").json()["state"] == "running"
    embedded.open_gate()
    assert embedded.until_over(job_id) == {"completed": 1}
    assert embedded.outcomes(job_id) == ["done"]
    assert up.leave() == 0
    assert url


def test_up_without_the_api(embedded: Site):
    up = embedded.start("up", "--no-api")
    until(lambda: up.logs("worker.started"), what=lambda: up.log)
    assert not up.logs("name=api")
    assert up.leave() == 0


def test_an_api_whose_supervisor_is_killed_leaves(embedded: Site):
    up = embedded.start("up", api_auth=False)
    _url(embedded, up)
    children = up.children()
    up.kill()
    until(lambda: not any(each.is_running() and _lives(each) for each in children), within=60)


def test_the_supervisor_and_the_help_import_no_web_framework():
    import subprocess

    code = (
        "import sys, quire, quire.runtime.supervisor, quire.cli.commands;"
        "print([m for m in ('fastapi', 'uvicorn', 'jinja2', 'httpx') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout.replace("'", '"')) == []


def _lives(one: object) -> bool:
    import psutil

    try:
        return one.status() != psutil.STATUS_ZOMBIE  # type: ignore[attr-defined,no-any-return]
    except psutil.NoSuchProcess:
        return False


def _url(site: Site, running: object) -> str:
    def started() -> list[str]:
        assert running.popen.poll() is None, running.log  # type: ignore[attr-defined]
        return running.logs("api.started")  # type: ignore[attr-defined,no-any-return]

    line = until(started, within=60)[-1]
    return line.partition("url=")[2].split()[0]


def _connected(at: Served) -> socket.socket:
    parts = urlsplit(at.url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10)
