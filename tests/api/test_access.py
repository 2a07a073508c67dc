"""The routes of access: sign-in, tokens, users, the audit. The real app, no network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from quire.api import app as frame
from quire.api.auth import authenticate
from quire.api.models.access import AuditEntry, CreatedToken, Me, SignInLink, Token, User
from quire.clock import FakeClock
from quire.control import access, sign_in
from quire.testing import scratch_app
from tests import blank, signing

MINUTE, DAY = 60.0, 86_400.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def api(home: Path, clock: FakeClock) -> Iterator[FastAPI]:
    blank.put(home)
    app = scratch_app(home, clock=clock, user="ada")
    yield signing.api_of(app)
    app.close()


def link_of(api: FastAPI, user: str = "ada") -> str:
    caller = signing.member(api, "admin", user="ada")
    return f"/sign-in/{sign_in.sign_in_link(caller, user)['link']}"


def test_a_link_is_shown_any_number_of_times_and_used_once(api: FastAPI):
    browser, preview = signing.stranger(api), signing.stranger(api)
    path = link_of(api)
    for client in (preview, preview, browser):
        shown = client.get(path)
        assert shown.status_code == 200
        assert "<strong>ada</strong>" in shown.text
        assert shown.headers["Cache-Control"] == "no-store"
        assert "set-cookie" not in shown.headers
    entered = browser.post(path, headers={"Sec-Fetch-Site": "same-origin"})
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"]
    assert re.match(rf"{authenticate.COOKIE}=[\w-]{{43}};", cookie)
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Max-Age=1209600" in cookie
    assert "Secure" not in cookie
    assert browser.get("/api/me").json()["user"] == "ada"
    for again in (preview.post(path), preview.get(path)):
        assert again.status_code == 401
        assert "It was used already." in again.text
    assert preview.get("/api/me").status_code == 401


def test_over_https_the_cookie_is_for_https(api: FastAPI):
    client = TestClient(api, base_url="https://localhost", follow_redirects=False)
    assert "Secure" in client.post(link_of(api)).headers["set-cookie"]
    behind = {"X-Forwarded-Proto": "https"}
    entered = signing.stranger(api).post(link_of(api), headers=behind)
    assert "Secure" in entered.headers["set-cookie"]
    url = signing.by_token(api).post("/api/users/ada/link", headers=behind).json()["url"]
    assert url.startswith("https://localhost/sign-in/")


def test_behind_a_proxy_with_tls_nothing_goes_in_clear(api: FastAPI):
    behind = {"X-Forwarded-Proto": "https"}
    client = signing.stranger(api)
    entered = client.post(link_of(api), headers=behind)
    assert entered.headers["set-cookie"].startswith("__Host-quire_session=")
    assert entered.headers["strict-transport-security"] == "max-age=31536000"
    cookie = entered.headers["set-cookie"].partition(";")[0]
    known = signing.stranger(api).get("/api/me", headers={**behind, "Cookie": cookie})
    assert known.status_code == 200
    # Another host of the domain could set a cookie without that prefix.
    planted = cookie.removeprefix("__Host-")
    assert (
        signing.stranger(api).get("/api/me", headers={**behind, "Cookie": planted}).status_code
        == 401
    )
    assert "strict-transport-security" not in signing.stranger(api).get("/healthz").headers


def test_a_token_expires_after_90_days_unless_told_otherwise(api: FastAPI, clock: FakeClock):
    usual, lasting = signing.by_token(api, "member"), signing.by_token(api, "member", days=0)
    clock.advance(89 * DAY)
    assert usual.get("/api/me").status_code == 200
    clock.advance(DAY)
    assert (usual.get("/api/me").status_code, lasting.get("/api/me").status_code) == (401, 200)


@pytest.mark.parametrize(
    ("proxies", "told", "found"),
    [
        ((), "203.0.113.7", "testclient"),
        (("10.0.0.0/8",), "203.0.113.7", "testclient"),
        (("10.0.0.0/8",), "6.6.6.6, 203.0.113.7, 10.0.0.9", "203.0.113.7"),
        (("10.0.0.0/8",), "nonsense", "10.0.0.5"),
        (("10.0.0.0/8",), "", "10.0.0.5"),
    ],
)
def test_only_trusted_proxies_tell_the_address_of_a_client(
    home: Path, proxies: tuple[str, ...], told: str, found: str
):
    blank.put(home)
    app = scratch_app(home, user="ada", trusted_proxies=proxies)
    here = frame.create_api(app)
    peer = "testclient" if found == "testclient" else "10.0.0.5"
    client = TestClient(here, client=(peer, 50000))
    client.get("/api/me", headers={"Authorization": "Bearer quire_x", "X-Forwarded-For": told})
    [entry] = access.read_audit(app.caller, action="sign_in.refused")
    assert entry["address"] == found
    app.close()


def test_a_link_that_cannot_sign_in_says_why(api: FastAPI, clock: FakeClock):
    client = signing.stranger(api)
    path = link_of(api)
    clock.advance(15 * MINUTE)
    assert "It has expired." in client.post(path).text
    assert "It is not known here." in client.get("/sign-in/<script>").text
    assert "quire user link" in client.get("/sign-in").text
    path = link_of(api)
    other = {"Sec-Fetch-Site": "cross-site"}
    assert client.post(path, headers=other).status_code == 403
    assert client.post(path).status_code == 303


def test_a_name_on_the_page_is_text(api: FastAPI):
    name = "<b>eve"
    access.create_user(signing.member(api, "admin", user="ada"), name, "viewer")
    assert "<strong>&lt;b&gt;eve</strong>" in signing.stranger(api).get(link_of(api, name)).text


def test_signing_out_ends_the_session(api: FastAPI):
    client = signing.by_session(api, "member")
    cookie = client.cookies[authenticate.COOKIE]
    csrf = client.headers.pop(authenticate.CSRF_HEADER)
    assert client.post("/sign-out").status_code == 403
    assert client.get("/api/me").json()["csrf"] == csrf
    left = client.post("/sign-out", data={"csrf": csrf})
    assert (left.status_code, left.headers["location"]) == (303, "/sign-in")
    thief = signing.stranger(api)
    thief.cookies.set(authenticate.COOKIE, cookie, domain="localhost.local")
    assert thief.get("/api/me").status_code == 401
    assert thief.post("/sign-out").status_code == 303


def test_users_end_their_own_sessions_and_admins_all(api: FastAPI):
    phone, laptop = signing.by_session(api, "member"), signing.by_session(api, "member")
    other = signing.by_session(api, "viewer")
    found = laptop.get("/api/sessions").json()["items"]
    assert [each["user"] for each in found] == ["member", "member"]
    lost = found[-1]["id"]
    assert other.delete(f"/api/sessions/{lost}").status_code == 404
    assert laptop.delete(f"/api/sessions/{lost}").json()["id"] == lost
    assert laptop.delete(f"/api/sessions/{lost}").status_code == 404
    assert (phone.get("/api/me").status_code, laptop.get("/api/me").status_code) == (401, 200)
    admin = signing.by_token(api)
    listed = admin.get("/api/sessions").json()["items"]
    assert {each["user"] for each in listed} == {"member", "viewer"}
    for each in listed:
        assert admin.delete(f"/api/sessions/{each['id']}").status_code == 200
    assert (laptop.get("/api/me").status_code, other.get("/api/me").status_code) == (401, 401)
    assert access.read_audit(signing.member(api, "admin"), action="session.end")


def test_who_asks_is_told_who_they_are(api: FastAPI):
    me = signing.by_token(api, "admin", scopes=["write"]).get("/api/me").json()
    expected = {"tenant": "default", "user": "admin", "role": "admin"}
    assert me == {**expected, "scopes": ["read", "write"], "corpus": None, "csrf": None}
    assert Me(**signing.by_session(api, "viewer").get("/api/me").json()).csrf


def test_a_token_is_made_listed_used_and_revoked(api: FastAPI):
    client = signing.by_session(api, "member")
    made = client.post("/api/tokens", json={"name": "ci", "scopes": ["read"], "days": 7})
    assert (made.status_code, made.headers["Cache-Control"]) == (201, "no-store")
    token = CreatedToken(**made.json())
    [listed] = client.get("/api/tokens").json()["items"]
    assert Token(**listed).id == token.id
    assert "token" not in listed
    program = signing.stranger(api)
    program.headers["Authorization"] = f"Bearer {token.token}"
    assert program.get("/api/me").json()["scopes"] == ["read"]
    assert client.get("/api/tokens").json()["items"][0]["last_used_at"]
    for _ in range(2):
        gone = client.delete(f"/api/tokens/{token.id}")
        assert (gone.status_code, gone.json()["state"]) == (200, "revoked")
    assert program.get("/api/me").status_code == 401


def test_a_token_cannot_make_itself_last(api: FastAPI):
    body = {"name": "longer"}
    for client in (signing.by_token(api, "member"), signing.by_token(api, scopes=["write"])):
        assert client.post("/api/tokens", json=body).status_code == 403
        assert client.delete("/api/tokens/1").status_code == 403
    assert signing.by_token(api).post("/api/tokens", json=body).status_code == 201


def test_tokens_of_others_are_for_admins(api: FastAPI):
    admin, member = signing.by_session(api), signing.by_session(api, "member")
    theirs = admin.post("/api/tokens", json={"name": "a"}).json()["id"]
    his = admin.post("/api/tokens", json={"name": "m", "user": "member"}).json()
    assert his["scopes"] == ["read", "write"]
    assert [each["id"] for each in member.get("/api/tokens").json()["items"]] == [his["id"]]
    asked = member.get("/api/tokens", params={"user": "admin"}).json()["items"]
    assert [each["id"] for each in asked] == [his["id"]]
    assert member.delete(f"/api/tokens/{theirs}").status_code == 404
    assert member.post("/api/tokens", json={"name": "x", "user": "admin"}).status_code == 403
    assert member.post("/api/tokens", json={"name": "x", "scopes": ["admin"]}).status_code == 422
    first = admin.get("/api/tokens", params={"limit": 1}).json()
    rest = admin.get("/api/tokens", params={"limit": 1, "cursor": first["next"]}).json()
    assert [first["items"][0]["id"], rest["items"][0]["id"]] == [his["id"], theirs]
    assert rest["next"] is None
    assert admin.delete(f"/api/tokens/{his['id']}").status_code == 200


def test_another_tenant_is_as_if_it_were_not_there(api: FastAPI):
    mine, other = signing.by_token(api), signing.by_token(api, tenant="other", user="zoe")
    [theirs] = other.get("/api/tokens").json()["items"]
    unknown = mine.delete("/api/tokens/999999")
    found = mine.delete(f"/api/tokens/{theirs['id']}")
    assert (found.status_code, unknown.status_code) == (404, 404)
    assert found.json()["detail"].replace(str(theirs["id"]), "999999") == unknown.json()["detail"]
    for verb, body in (("role", {"role": "viewer"}), ("disable", None), ("link", None)):
        assert mine.post(f"/api/users/zoe/{verb}", json=body).status_code == 404
    assert mine.post("/api/tokens", json={"name": "x", "user": "zoe"}).status_code == 404
    assert [each["name"] for each in mine.get("/api/users").json()["items"]] == ["admin"]
    tenants = {each["subject"] for each in mine.get("/api/audit").json()["items"]}
    assert "zoe" not in tenants


def test_admins_manage_users(api: FastAPI):
    client = signing.by_session(api)
    made = client.post("/api/users", json={"name": "bob", "role": "viewer"})
    assert (made.status_code, User(**made.json()).role) == (201, "viewer")
    assert client.post("/api/users", json={"name": "bob"}).status_code == 409
    role = client.post("/api/users/bob/role", json={"role": "member"})
    assert role.json()["role"] == "member"
    link = SignInLink(**client.post("/api/users/bob/link").json())
    assert link.url == f"http://localhost{link.path}"
    browser = signing.stranger(api)
    assert browser.post(link.path).status_code == 303
    assert browser.get("/api/me").json()["user"] == "bob"
    assert client.post("/api/users/bob/disable").json()["disabled_at"]
    assert browser.get("/api/me").status_code == 401
    assert client.post("/api/users/bob/link").status_code == 409
    assert client.post("/api/users/admin/disable").status_code == 409
    assert client.post("/api/users/admin/role", json={"role": "viewer"}).status_code == 409


@pytest.mark.parametrize("role", ["member", "viewer"])
def test_users_and_the_audit_are_for_admins(api: FastAPI, role: str):
    client = signing.by_session(api, role)
    for method, path, body in (
        ("GET", "/api/users", None),
        ("POST", "/api/users", {"name": "x"}),
        ("POST", f"/api/users/{role}/role", {"role": "admin"}),
        ("POST", f"/api/users/{role}/disable", None),
        ("POST", f"/api/users/{role}/link", None),
        ("GET", "/api/audit", None),
    ):
        assert client.request(method, path, json=body).status_code == 403


def test_the_audit_has_every_change_with_its_address(api: FastAPI):
    client = signing.by_session(api)
    token: dict[str, Any] = client.post("/api/tokens", json={"name": "ci"}).json()
    client.delete(f"/api/tokens/{token['id']}")
    client.post("/api/users", json={"name": "bob"})
    client.post("/api/users/bob/role", json={"role": "viewer"})
    path = client.post("/api/users/bob/link").json()["path"]
    signing.stranger(api).post(path)
    signing.stranger(api).post(path)
    client.post("/api/users/bob/disable")
    items = client.get("/api/audit", params={"limit": 8}).json()["items"]
    assert [(row["user"], row["action"], row["subject"]) for row in items] == [
        ("admin", "user.disable", "bob"),
        ("bob", "sign_in.refused", None),
        ("bob", "sign_in", None),
        ("admin", "link.create", "bob"),
        ("admin", "user.role", "bob"),
        ("admin", "user.create", "bob"),
        ("admin", "token.revoke", "ci"),
        ("admin", "token.create", "ci"),
    ]
    assert {AuditEntry(**row).address for row in items} == {"testclient"}
    secret = token["token"]
    assert secret not in client.get("/api/audit").text
    page = client.get("/api/audit", params={"limit": 1, "action": "user.role"}).json()
    assert (page["items"][0]["detail"], page["next"]) == (
        {"role": "viewer", "before": "member"},
        None,
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/tokens", {}),
        ("/api/tokens", {"name": ""}),
        ("/api/tokens", {"name": "x", "scopes": []}),
        ("/api/tokens", {"name": "x", "scopes": ["fly"]}),
        ("/api/tokens", {"name": "x", "days": -1}),
        ("/api/tokens", {"name": "x", "days": 1e9}),
        ("/api/tokens", {"name": "x", "colour": "red"}),
        ("/api/tokens", {"name": "a\u0000b"}),
        ("/api/tokens", {"name": "a\nb"}),
        ("/api/users", {"name": "a/b"}),
        ("/api/users", {"name": "x" * 201}),
        ("/api/users", {"name": "bob", "role": "king"}),
        ("/api/users/ada/role", {"role": 7}),
    ],
)
def test_what_cannot_be_is_not_accepted(api: FastAPI, path: str, body: dict[str, Any]):
    answer = signing.by_session(api).post(path, json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_with_auth_off_the_machine_s_user_makes_tokens(home: Path):
    blank.put(home)
    app = scratch_app(home, user="ada", api_auth=False)
    client = signing.stranger(signing.api_of(app))
    made = client.post("/api/tokens", json={"name": "ci"}).json()
    assert (made["user"], made["scopes"]) == ("ada", ["read", "write", "admin"])
    assert client.get("/sign-in").headers["location"] == "/"
    app.close()
