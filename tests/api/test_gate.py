"""Who is let in: tokens, sessions, csrf, other sites, names, rates. The real app, no network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import APIRouter, FastAPI, Form, Request
from fastapi.testclient import TestClient

from quire.api import app as frame
from quire.api.auth import authenticate
from quire.api.auth.authenticate import Admin, Reader, Writer
from quire.api.auth.rate_limit import FAILURES_PER_MINUTE, MAX_CLIENTS, TokenBuckets, network
from quire.clock import FakeClock
from quire.control import access, sign_in
from quire.errors import BadInput
from quire.settings import Settings
from quire.testing import scratch_app
from tests import blank, signing

DAY = 86_400.0
router = APIRouter()


@router.post("/echo/declared")
def declared(viewer: Writer, word: Annotated[str, Form()]) -> str:
    """Read a form that the route declares."""
    return word


@router.post("/echo/read")
async def read(request: Request, viewer: Writer) -> str:
    """Read a form as it comes, files too."""
    async with request.form() as form:
        word = form["word"]
        return word if isinstance(word, str) else (await word.read()).decode()


@router.post("/echo/raw")
async def raw(request: Request, viewer: Writer) -> int:
    """Read a body piece by piece."""
    return sum([len(part) async for part in request.stream()])


@router.get("/echo/{scope}")
def reached(viewer: Reader) -> str:
    """Tell who reached it."""
    return viewer.user


@router.put("/echo/admin")
def changed(viewer: Admin) -> str:
    """Stand for a change that only admins make."""
    return viewer.user


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def api(home: Path, clock: FakeClock) -> Iterator[FastAPI]:
    blank.put(home)
    app = scratch_app(home, clock=clock, user="ada")
    yield frame.create_api(app, router)
    app.close()


@pytest.fixture
def opened(home: Path, clock: FakeClock) -> Iterator[FastAPI]:
    """The same with authentication off."""
    blank.put(home)
    app = scratch_app(home, clock=clock, user="ada", api_auth=False)
    yield frame.create_api(app, router)
    app.close()


def audit(api: FastAPI) -> list[dict[str, object]]:
    return access.read_audit(api.state.app_state.app.caller, action="sign_in.refused", limit=1000)


def test_a_token_lets_its_user_in_as_far_as_role_and_scopes_go(api: FastAPI):
    admin, member = signing.by_token(api), signing.by_token(api, "member")
    viewer = signing.by_token(api, "viewer")
    narrow = signing.by_token(api, "admin", scopes=["read"])
    for client, statuses in (
        (admin, (200, 200, 200)),
        (member, (200, 200, 403)),
        (viewer, (200, 403, 403)),
        (narrow, (200, 403, 403)),
    ):
        form = {"word": "x"}
        found = (client.get("/echo/r"), client.post("/echo/declared", data=form))
        assert (*(each.status_code for each in found), client.put("/echo/admin").status_code) == (
            statuses
        )
    assert admin.get("/echo/r").json() == "admin"


def test_without_a_token_nobody_is_let_in(api: FastAPI):
    answer = signing.stranger(api).get("/echo/r")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"
    assert "not authenticated" in answer.json()["detail"]
    assert "quire token create" in answer.json()["remedy"]
    assert audit(api) == []


def test_a_token_that_is_wrong_expired_revoked_or_of_a_disabled_user(
    api: FastAPI, clock: FakeClock
):
    expired = signing.by_token(api, "member", days=1)
    revoked = signing.by_token(api, "member", user="bob")
    disabled = signing.by_token(api, "member", user="eve")
    caller = signing.member(api, "admin")
    for each in access.list_tokens(caller, user="bob"):
        access.revoke_token(caller, each["id"])
    access.disable_user(caller, "eve")
    clock.advance(DAY)
    wrong = signing.stranger(api)
    wrong.headers["Authorization"] = "Bearer quire_wrong"
    for client, reason in (
        (expired, "token: has expired."),
        (revoked, "token: was revoked."),
        (disabled, "token: its user is disabled."),
        (wrong, "token: unknown."),
    ):
        answer = client.get("/echo/r")
        assert (answer.status_code, answer.json()["detail"]) == (401, reason)
    assert [(row["user"], row["detail"]) for row in audit(api)] == [
        (None, {"by": "token", "reason": "unknown"}),
        ("eve", {"by": "token", "reason": "its user is disabled"}),
        ("bob", {"by": "token", "reason": "was revoked"}),
        ("member", {"by": "token", "reason": "has expired"}),
    ]


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Bearer \xff", "bearer quire_x", "Bearer " + "x" * 9000]
)
def test_a_header_that_is_no_token_is_refused(api: FastAPI, header: str):
    client = signing.stranger(api)
    answer = client.get("/echo/r", headers={b"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401


def test_a_wrong_token_is_refused_even_beside_a_good_session(api: FastAPI):
    client = signing.by_session(api)
    assert client.get("/echo/r").status_code == 200
    bad = {"Authorization": "Bearer quire_wrong"}
    assert client.get("/echo/r", headers=bad).status_code == 401
    # What a proxy wants for itself is none of ours.
    basic = {"Authorization": "Basic YTpi"}
    assert client.get("/echo/r", headers=basic).status_code == 200


def test_a_session_changes_nothing_without_its_csrf(api: FastAPI):
    client, other = signing.by_session(api, "member"), signing.by_session(api, "member")
    csrf = client.headers.pop(authenticate.CSRF_HEADER)
    assert client.get("/echo/r").status_code == 200
    for form in (
        {"word": "x", "csrf": ""},
        {"word": "x", "csrf": "wrong"},
        {"word": "x", "csrf": other.headers[authenticate.CSRF_HEADER]},
        {"word": "x", "csrf": "é"},
    ):
        answer = client.post("/echo/declared", data=form)
        assert answer.status_code == 403
        assert answer.json()["detail"] == "CSRF token: missing, or of another session."
    assert client.post("/echo/read", data={"word": "x"}).status_code == 403
    assert client.post("/echo/raw", content=b"x").status_code == 403
    assert (
        client.post("/echo/raw", content=b"x", headers={authenticate.CSRF_HEADER: csrf}).json() == 1
    )


def test_a_form_carries_the_csrf_and_stays_readable(api: FastAPI):
    client = signing.by_session(api)
    csrf = client.headers.pop(authenticate.CSRF_HEADER)
    for path in ("/echo/declared", "/echo/read"):
        answer = client.post(path, data={"word": "hello", "csrf": csrf})
        assert (answer.status_code, answer.json()) == (200, "hello")


def test_an_upload_carries_the_csrf_in_its_address_or_a_header(api: FastAPI):
    client = signing.by_session(api)
    csrf = client.headers.pop(authenticate.CSRF_HEADER)
    files = {"word": ("a.txt", b"hello")}
    assert client.post("/echo/read", files=files, data={"csrf": csrf}).status_code == 403
    assert client.post("/echo/read", files=files, params={"csrf": csrf}).json() == "hello"
    header = {authenticate.CSRF_HEADER: csrf}
    assert client.post("/echo/read", files=files, headers=header).json() == "hello"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"}, 403),
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": "http://localhost:99"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[bad"}, 403),
        ({}, 200),
    ],
)
def test_a_page_of_another_site_changes_nothing(
    api: FastAPI, opened: FastAPI, headers: dict[str, str], status: int
):
    for client in (signing.by_session(api), signing.stranger(opened)):
        assert client.put("/echo/admin", headers=headers).status_code == status
        assert client.get("/echo/r", headers=headers).status_code == 200
    # A token is never sent by a browser on its own.
    assert signing.by_token(api).put("/echo/admin", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8750", 200),
        ("quire.localhost:1", 200),
        ("127.0.0.1:8750", 200),
        ("[::1]:8750", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("10.0.0.1", 403),
        ("", 403),
        ("[bad", 403),
    ],
)
def test_where_auth_is_off_only_names_of_this_machine_are_answered(
    opened: FastAPI, host: str, status: int
):
    answer = signing.stranger(opened).get("/echo/r", headers={"Host": host})
    assert answer.status_code == status
    if status == 200:
        assert answer.json() == "ada"


def test_where_auth_is_off_old_cookies_do_no_harm_and_wrong_tokens_are_refused(opened: FastAPI):
    client = signing.stranger(opened)
    client.cookies.set(authenticate.COOKIE, "old", domain="localhost.local")
    assert client.put("/echo/admin").json() == "ada"
    assert client.get("/echo/r", headers={"Authorization": "Bearer x"}).status_code == 401
    assert signing.by_token(opened, "viewer").put("/echo/admin").status_code == 403


def test_requests_of_a_user_are_limited_and_the_limit_passes(home: Path, clock: FakeClock):
    blank.put(home)
    app = scratch_app(home, clock=clock, user="ada", api_requests_per_minute=30)
    api = frame.create_api(app, router)
    mine, again = signing.by_token(api, "member"), signing.by_token(api, "member")
    other = signing.by_token(api, "viewer")
    assert [mine.get("/echo/r").status_code for _ in range(30)] == [200] * 30
    refused = again.get("/echo/r")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2")
    assert "more than 30 per minute" in refused.json()["detail"]
    assert other.get("/echo/r").status_code == 200
    clock.advance(2)
    assert [mine.get("/echo/r").status_code for _ in range(2)] == [200, 429]
    nobody = signing.stranger(api)
    assert [nobody.get("/echo/r").status_code for _ in range(31)] == [401] * 30 + [429]
    app.close()


def test_failed_sign_ins_of_an_address_are_limited_more_strictly(api: FastAPI, clock: FakeClock):
    good, bad = signing.by_token(api), signing.stranger(api)
    bad.headers["Authorization"] = "Bearer quire_wrong"
    found = [bad.get("/echo/r") for _ in range(FAILURES_PER_MINUTE + 2)]
    assert [each.status_code for each in found] == [401] * FAILURES_PER_MINUTE + [429] * 2
    assert found[-1].headers["Retry-After"] == "6"
    assert len(audit(api)) == FAILURES_PER_MINUTE
    # Who has a good token is let in from the same address.
    assert good.get("/echo/r").status_code == 200
    links = [bad.post("/sign-in/wrong").status_code for _ in range(2)]
    assert (links, len(audit(api))) == ([429, 429], FAILURES_PER_MINUTE)
    clock.advance(6)
    assert bad.get("/echo/r").status_code == 401


def test_the_buckets_do_not_grow_without_end():
    buckets = TokenBuckets(5)
    for n in range(MAX_CLIENTS + 50):
        assert buckets.take(f"10.0.0.{n}", 0.0) == 0.0
    assert len(buckets._left) == MAX_CLIENTS
    assert TokenBuckets(0).take("x", 0.0) == 0.0
    assert network("2001:db8::1") == network("2001:db8::2") != network("2001:db8:0:1::1")
    assert network("10.0.0.1") == "10.0.0.1"
    assert network("testclient") == "testclient"


def test_a_session_that_ended_is_refused(api: FastAPI, clock: FakeClock):
    client = signing.by_session(api, "member")
    clock.advance(14 * DAY)
    answer = client.get("/echo/r")
    assert (answer.status_code, answer.json()["detail"]) == (401, "session: has ended.")
    client = signing.by_session(api, "member")
    access.disable_user(signing.member(api, "admin"), "member")
    assert client.get("/echo/r").status_code == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.168.1.7", "quire.example"])  # noqa: S104
def test_others_are_not_let_in_unasked(host: str):
    with pytest.raises(BadInput, match="QUIRE_API_HOST"):
        authenticate.require_bind_allowed(Settings(api_host=host, api_auth=False))
    authenticate.require_bind_allowed(Settings(api_host=host))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "localhost", "::1", "[::1]"])
def test_this_machine_may_be_let_in_unasked(host: str):
    authenticate.require_bind_allowed(Settings(api_host=host, api_auth=False))


def test_the_document_says_how_to_sign_in(api: FastAPI):
    document = signing.stranger(api).get("/api/openapi.json").json()
    assert set(document["components"]["securitySchemes"]) == {"HTTPBearer", "APIKeyCookie"}
    assert document["paths"]["/api/tokens"]["post"]["security"]


def test_a_database_that_is_away_is_not_a_refusal(api: FastAPI, home: Path):
    client = signing.by_token(api)
    api.state.app_state.db.close()
    for path in home.glob("quire.db*"):
        path.rename(path.with_name("moved" + path.name))
    (home / "quire.db").mkdir()
    answer = client.get("/echo/r")
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1


def test_the_first_link_of_a_home_signs_its_user_in(api: FastAPI):
    client: TestClient = signing.stranger(api)
    link = sign_in.first_start(api.state.app_state.app.caller)
    assert client.get(f"/sign-in/{link}").status_code == 200
    assert client.post(f"/sign-in/{link}").headers["location"] == "/"
    assert client.get("/api/me").json()["user"] == "ada"
