"""The stream of events: each event once, to those it is for, from where they left off."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from quire.api import stream as tailing
from quire.api.routes import events as streaming
from quire.control import access
from quire.store.queue import events
from tests.api.serving import Served, Stream, served, stream
from tests.waiting import until


@pytest.fixture(params=["sqlite", "postgres"])
def at(request: pytest.FixtureRequest, home: Path) -> Iterator[Served]:
    url = request.getfixturevalue("pg_url") if request.param == "postgres" else ""
    with served(home=home, database_url=url) as running:
        yield running


@pytest.fixture
def on_postgres(home: Path, pg_url: str) -> Iterator[Served]:
    """The same on PostgreSQL alone, where transactions run side by side."""
    with served(home=home, database_url=pg_url) as running:
        yield running


@pytest.fixture
def here(home: Path) -> Iterator[Served]:
    """The same on SQLite alone."""
    with served(home=home, api_max_streams=16) as running:
        yield running


def test_an_open_stream_gets_what_happens(at: Served):
    with stream(at) as opened:
        at.happen("one", "two")
        at.happen("three")
        assert opened.names(3) == ["one", "two", "three"]


def test_two_transactions_that_commit_out_of_order_are_both_told_once(on_postgres: Served):
    at = on_postgres
    with stream(at) as opened:
        with at.app.db.begin() as early:
            now = at.app.db.now(early)
            events.record(early, [events.Event(None, "early", tenant="default")], now=now)
            at.happen("late")
        at.happen("after")
        assert opened.names(3) == ["early", "late", "after"]


@pytest.mark.parametrize("by_header", [True, False])
def test_who_comes_back_with_a_cursor_misses_nothing(at: Served, by_header: bool):
    with stream(at) as opened:
        at.happen("first", "second")
        cursor = opened.next().cursor
    at.happen(*(f"while away {n}" for n in range(600)))
    how: dict[str, Any] = {"headers": {"Last-Event-ID": cursor}} if by_header else {}
    with stream(at, **how, **({} if by_header else {"cursor": cursor})) as opened:
        at.happen("back")
        wanted = ["second", *(f"while away {n}" for n in range(600)), "back"]
        assert opened.names(len(wanted)) == wanted


def test_streams_go_on_after_a_restore_into_a_fresh_cluster(on_postgres: Served):
    at, ahead = on_postgres, 1 << 40
    with stream(at) as opened:
        at.happen("before")
        xid, _, number = str(opened.next().cursor).partition("-")
    at.happen("unread")
    with at.app.db.begin() as conn:
        conn.exec_driver_sql(f"UPDATE events SET xid = xid + {ahead}")
    with stream(at, cursor=f"{int(xid) + ahead}-{number}") as opened:
        at.happen("after")
        assert opened.names(2) == ["unread", "after"]


def test_a_stream_that_was_behind_a_restore_is_told_what_happened_before_it_came_back(
    on_postgres: Served,
):
    at, ahead = on_postgres, 1 << 40
    with stream(at) as opened:
        at.happen("before")
        xid, _, number = str(opened.next().cursor).partition("-")
    at.happen("unread")
    with at.app.db.begin() as conn:
        conn.exec_driver_sql(f"UPDATE events SET xid = xid + {ahead}")
        last = "SELECT xid || '-' || id FROM events ORDER BY id DESC LIMIT 1"
        told = conn.exec_driver_sql(last).scalar_one()
    at.happen("since")
    with at.app.db.begin() as open_meanwhile:
        now = at.app.db.now(open_meanwhile)
        events.record(open_meanwhile, [events.Event(None, "late", tenant="default")], now=now)
        with stream(at, cursor=f"{int(xid) + ahead}-{number}") as opened:
            unread = opened.next()
            assert unread["name"] == "unread"
            assert unread.cursor == told, "its cursor stays what it was before the restore"
    with stream(at, cursor=told) as opened:
        assert opened.names(2) == ["since", "late"]


def test_open_streams_are_told_to_reconnect_after_a_restore(on_postgres: Served):
    at = on_postgres
    with stream(at) as opened:
        tail = at.api.state.tail
        tail._at = tail._at._replace(xid=1 << 40)
        assert opened.next().kind == "bye"
    with stream(at) as opened:
        at.happen("after")
        assert opened.names(1) == ["after"]


def test_a_stream_that_breaks_before_its_first_event_has_a_cursor_already(at: Served):
    with stream(at) as opened:
        cursor = opened.cursor
    at.happen("meanwhile")
    with stream(at, cursor=cursor) as opened:
        assert opened.names(1) == ["meanwhile"]


def test_the_last_event_received_counts_more_than_the_address(here: Served):
    with stream(here) as opened:
        old = opened.cursor
        here.happen("one", "two")
        last = opened.next().cursor
    with stream(here, cursor=old, headers={"Last-Event-ID": last}) as opened:
        assert opened.names(1) == ["two"]


def test_a_stream_may_be_about_one_job_or_some_names(here: Served):
    [job, other] = [here.app.submit("noop") for _ in range(2)]
    with stream(here, job=job) as of_job, stream(here, names="job,page.read") as of_names:
        here.happen("progress", "job.completed", job_id=other)
        here.happen("job.failed", "page.read", "page.reader", "jobs", job_id=job)
        assert of_job.names(4) == ["job.failed", "page.read", "page.reader", "jobs"]
        assert of_names.names(3) == ["job.completed", "job.failed", "page.read"]


def test_a_job_of_nobody_and_a_cursor_of_nothing_are_refused(here: Served):
    assert here.http.get("/api/events", params={"job": 99}).status_code == 404
    answer = here.http.get("/api/events", params={"cursor": "<script>"})
    assert answer.status_code == 422
    assert "not a cursor" in answer.json()["detail"]


def test_events_of_another_tenant_are_not_told(here: Served):
    with stream(here) as opened:
        here.happen("theirs", tenant="other")
        here.happen("ours")
        assert opened.names(1) == ["ours"]


def test_a_submitted_job_is_hinted_at_before_anything_happened_to_it(at: Served):
    with stream(at) as opened:
        until(lambda: at.api.state.tail._pulses)
        at.app.submit("noop")
        assert opened.next(hints=True)["name"] == "queue.changed"


def test_a_hundred_readers_get_every_event(home: Path):
    with served(home=home, api_max_streams=400) as at, contextlib.ExitStack() as stack:
        at.http.close()
        at.http = httpx.Client(
            base_url=at.url, timeout=60, limits=httpx.Limits(max_connections=None)
        )
        opened = [stack.enter_context(stream(at)) for _ in range(100)]
        for n in range(20):
            at.happen(f"n{n}")
        for one in opened:
            assert one.names(20) == [f"n{n}" for n in range(20)]
        assert at.api.state.tail.count == 100
        # One reader for all of them, not one each.
        assert at.http.get("/healthz").status_code == 200


def test_streams_past_the_limit_are_refused_and_a_place_is_given_back(home: Path):
    with served(home=home, api_max_streams=8) as at:
        with stream(at), stream(at):
            refused = at.http.get("/api/events")
            assert refused.status_code == 429
            assert refused.headers["Retry-After"]
            assert "user ada has 2 streams" in refused.json()["detail"]
        until(lambda: at.api.state.tail.count == 0)
        with stream(at):
            pass


def test_the_limit_of_all_holds_for_everyone(home: Path):
    with served(home=home, api_max_streams=1) as at, stream(at):
        refused = at.http.get("/api/events")
        assert refused.status_code == 429
        assert "QUIRE_API_MAX_STREAMS" in refused.json()["remedy"]


def test_a_reader_that_is_too_slow_is_told_to_come_back(
    here: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tailing, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(tailing, "QUEUE_LENGTH", 3)
    with _unread(here) as sock:
        tail = here.api.state.tail
        sent = 0
        while tail._listeners:
            here.happen(*[f"{sent + n:06d}-{'x' * 2000}" for n in range(200)])
            sent += 200
        with _resumed(sock) as slow:
            seen = []
            while (message := slow.next()).kind == "message":
                seen.append(int(message["name"][:6]))
            assert message.kind == "bye"
            assert "too slowly" in message["why"]
    assert seen == list(range(len(seen)))
    assert len(seen) < sent
    with stream(here, cursor=message["cursor"]) as back:
        assert int(back.next()["name"][:6]) == len(seen)


def test_streams_end_with_a_message_when_the_server_stops(home: Path):
    with served(home=home) as at, stream(at) as opened:
        at.happen("one")
        assert opened.names(1) == ["one"]
        at.server.should_exit = True
        message = opened.next()
        assert message.kind == "bye"
        assert message["cursor"] == opened.cursor


def test_a_revoked_token_ends_its_stream(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streaming, "BEAT", 0.2)
    with served(home=home, api_auth=True) as at:
        access.ensure_admin(at.app.caller)
        token = access.create_token(at.app.caller, "t", ["read"])
        assert at.http.get("/api/events").status_code == 401
        headers = {"Authorization": f"Bearer {token['token']}"}
        with stream(at, headers=headers) as opened:
            at.happen("one")
            assert opened.names(1) == ["one"]
            until(lambda: _beaten(at, opened))
            access.revoke_token(at.app.caller, token["id"])
            message = opened.next()
        assert message.kind == "bye"


def _beaten(at: Served, opened: Stream) -> bool:
    at.happen("beat")
    opened.next()
    return opened.comments > 0


def test_the_reader_rests_when_nobody_listens(here: Served):
    tail = here.api.state.tail
    with stream(here):
        assert not tail._reading.done()
    until(lambda: tail._reading.done())
    with stream(here) as opened:
        here.happen("again")
        assert opened.names(1) == ["again"]


@contextlib.contextmanager
def _unread(at: Served) -> Iterator[socket.socket]:
    """Open a stream with small buffers and read nothing of it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, _, port = at.url.removeprefix("http://").partition(":")
    sock.settimeout(30)
    sock.connect((host, int(port)))
    sock.sendall(f"GET /api/events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    until(lambda: at.api.state.tail._listeners)
    with sock:
        yield sock


@contextlib.contextmanager
def _resumed(sock: socket.socket) -> Iterator[Stream]:
    """Read what a stream that lay unread has."""

    class Lines:
        def iter_lines(self) -> Iterator[str]:
            with sock.makefile("rb") as file:
                while file.readline() not in (b"\r\n", b""):
                    pass
                body = b"".join(_chunks(file))
            yield from body.decode().splitlines()

    yield Stream(Lines())  # type: ignore[arg-type]


def _chunks(file: Any) -> Iterator[bytes]:
    while size := int(file.readline(), 16):
        yield file.read(size)
        file.readline()
