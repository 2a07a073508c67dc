"""Sign-in with an OpenID provider: a real one on this machine, kind and hostile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import RSAKey

from quire.api.auth import authenticate
from quire.api.routes import single_sign_on as route
from quire.control import access, openid
from quire.errors import BadInput
from quire.settings import load
from quire.testing import scratch_app
from tests import blank, signing
from tests.identities import CLIENT, SECRET, Identities, provider, unsigned


@pytest.fixture
def idp() -> Iterator[Identities]:
    with provider() as one:
        yield one


class Door:
    """An API whose users sign in at a provider."""

    def __init__(self, home: Path, idp: Identities, **settings: Any) -> None:
        blank.put(home)
        settings = {
            "oidc_issuer": idp.issuer, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET,
            "public_url": "http://localhost", **settings,
        }  # fmt: skip
        self.idp = idp
        self.app = scratch_app(home, user="root", **settings)
        idp.now = lambda: self.app.db.clock.now().wall
        self.api = signing.api_of(self.app)
        self.caller = replace(self.app.caller, user="root")
        access.ensure_admin(self.caller)

    def browser(self) -> TestClient:
        return signing.stranger(self.api)

    def begin(self, browser: TestClient) -> str:
        """Go to the provider and come back as far as the URL of the callback."""
        sent = browser.get("/oidc/start")
        assert sent.status_code == 303, sent.text
        return self.idp.authorize(sent.headers["location"])

    def enter(self, browser: TestClient | None = None) -> Any:
        browser = browser or self.browser()
        return browser.get(self.begin(browser))

    def refusals(self) -> list[str]:
        found = access.read_audit(self.caller, action="sign_in.refused")
        return [each["detail"]["reason"] for each in found]

    def count_sessions(self) -> int:
        return len(access.list_sessions(self.caller))


@pytest.fixture
def door(home: Path, idp: Identities) -> Iterator[Door]:
    """An API that knows ada@example.org."""
    door = Door(home, idp)
    access.create_user(door.caller, "ada@example.org", "member")
    yield door
    door.app.close()


def refused(door: Door, answer: Any, why: str, status: int = 401) -> None:
    assert (answer.status_code, why in answer.text) == (status, True), answer.text
    assert f"{authenticate.COOKIE}=" not in answer.headers.get("set-cookie", "")
    assert door.count_sessions() == 0


def test_a_known_user_signs_in_with_a_new_session(door: Door):
    browser = door.browser()
    browser.cookies.set(authenticate.COOKIE, "planted", domain="localhost.local")
    answer = door.enter(browser)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookies = answer.headers.get_list("set-cookie")
    [session] = [each for each in cookies if each.startswith(f"{authenticate.COOKIE}=")]
    assert "planted" not in session
    assert "HttpOnly" in session
    assert any(each.startswith(f'{route.COOKIE}=""') for each in cookies)
    client = door.browser()
    client.headers["Cookie"] = session.partition(";")[0]
    assert client.get("/api/me").json()["user"] == "ada@example.org"
    for planted in (f"{authenticate.COOKIE}=planted", ""):
        other = door.browser()
        other.headers["Cookie"] = planted
        assert other.get("/api/me").status_code == 401
    [noted] = access.read_audit(door.caller, action="sign_in")
    assert (noted["user"], noted["detail"]) == ("ada@example.org", {"by": "oidc"})
    assert noted["address"] == "testclient"


def test_over_https_the_attempt_is_in_a_cookie_that_no_other_host_can_set(door: Door):
    sent = door.browser().get("/oidc/start", headers={"X-Forwarded-Proto": "https"})
    cookie = sent.headers["set-cookie"]
    assert cookie.startswith("__Host-quire_oidc=")
    assert all(each in cookie for each in ("HttpOnly", "Secure", "SameSite=lax", "Path=/"))


def other_key(idp: Identities, claims: dict[str, Any]) -> str:
    """Signed by somebody else, who says that it is the known key."""
    return jwt.encode({"alg": "RS256", "kid": idp.key.kid}, claims, RSAKey.generate_key(2048))


SIGNATURES: dict[str, Callable[[Identities, dict[str, Any]], str]] = {
    "none": lambda idp, claims: unsigned({"alg": "none"}, claims),
    "none with a kid": lambda idp, claims: unsigned({"alg": "none", "kid": "first"}, claims),
    "public key as secret": lambda idp, claims: idp.signed_as_secret(claims),
    "other key": other_key,
    "cut": lambda idp, claims: idp._signed(claims)[:-8],
    "nonsense": lambda idp, claims: "nonsense",
    "empty": lambda idp, claims: "",
    "three dots": lambda idp, claims: "...",
}


@pytest.mark.parametrize("how", SIGNATURES)
def test_a_token_without_a_right_signature_is_refused(door: Door, how: str):
    door.idp.signed = lambda claims: SIGNATURES[how](door.idp, claims)
    refused(door, door.enter(), "a token without a valid signature")
    assert len(door.refusals()) == 1


@pytest.mark.parametrize(
    ("twist", "why"),
    [
        ({"iss": "http://127.0.0.1:1"}, "is of another issuer"),
        ({"iss": None}, "is of another issuer"),
        ({"aud": "somebody"}, "meant for another client"),
        ({"aud": None}, "meant for another client"),
        ({"aud": [CLIENT, "somebody"]}, "meant for another client"),
        ({"aud": [CLIENT, "somebody"], "azp": "somebody"}, "meant for another client"),
        ({"azp": "somebody"}, "meant for another client"),
        ({"exp": 1}, "has expired"),
        ({"exp": None}, "has expired"),
        ({"exp": "tomorrow"}, "has expired"),
        ({"exp": True}, "has expired"),
        ({"iat": 10**11, "exp": 10**12}, "is of the future"),
        ({"nbf": 10**11}, "is of the future"),
        ({"nonce": "another"}, "is of another sign-in"),
        ({"nonce": None}, "is of another sign-in"),
        ({"nonce": 7}, "is of another sign-in"),
        ({"sub": None}, "names nobody"),
        ({"sub": ""}, "names nobody"),
        ({"sub": ["s-1"]}, "names nobody"),
        ({"email_verified": False}, "no e-mail address that the provider has verified"),
        ({"email_verified": None}, "no e-mail address that the provider has verified"),
        ({"email_verified": "true"}, "no e-mail address that the provider has verified"),
        ({"email": "\u212aate@example.org"}, "letters beyond ASCII"),
        ({"email": None}, "no e-mail address that the provider has verified"),
        ({"email": ["ada@example.org"]}, "no e-mail address that the provider has verified"),
    ],
)
def test_a_token_that_says_something_wrong_is_refused(door: Door, twist: dict[str, Any], why: str):
    door.idp.twist = twist
    refused(door, door.enter(), why)
    assert why in door.refusals()[0]


def test_clocks_may_differ_by_a_minute(door: Door):
    now = int(door.app.db.clock.now().wall)
    for twist, status in (
        ({"exp": now - 62}, 401),
        ({"iat": now + 62}, 401),
        ({"exp": now - 58, "iat": now + 58}, 303),
    ):
        door.idp.twist = twist
        assert door.enter().status_code == status


def test_a_browser_that_did_not_begin_it_is_refused(door: Door):
    """Login CSRF: the attacker's code in the browser of somebody else."""
    browser, other = door.browser(), door.browser()
    path = door.begin(browser)
    refused(door, other.get(path), "Was not begun in this browser")
    door.begin(other)
    refused(door, other.get(path), "was begun in another browser")
    again = door.begin(browser)
    without = again.partition("&state=")[0]
    refused(door, browser.get(without), "was begun in another browser")
    for planted in ("", "x", "..", "a.b", "a.b.c.d"):
        thief = door.browser()
        thief.headers["Cookie"] = f"{route.COOKIE}={planted}"
        assert thief.get(again).status_code == 401
    refused(door, door.browser().get("/oidc/callback"), "Was not begun in this browser")


def test_a_code_is_used_once(door: Door):
    browser = door.browser()
    path = door.begin(browser)
    kept = {route.COOKIE: browser.cookies[route.COOKIE]}
    assert browser.get(path).status_code == 303
    assert browser.get(path).status_code == 401  # the attempt has ended
    thief = door.browser()
    thief.headers["Cookie"] = f"{route.COOKIE}={kept[route.COOKIE]}"
    again = thief.get(path)
    assert (again.status_code, "was not accepted by the provider" in again.text) == (401, True)
    assert door.count_sessions() == 1


def test_a_stolen_code_is_worth_nothing_without_the_verifier(door: Door):
    victim, thief = door.browser(), door.browser()
    path = door.begin(victim)
    code = path.partition("code=")[2].partition("&")[0]
    own = door.begin(thief).partition("state=")[2]
    refused(door, thief.get(f"/oidc/callback?code={code}&state={own}"), "was not accepted")


def test_a_mixed_up_provider_is_refused(door: Door):
    browser = door.browser()
    refused(door, browser.get(door.begin(browser) + "&iss=http://evil"), "another provider")
    issuer = urlencode({"iss": door.idp.issuer})
    assert browser.get(f"{door.begin(browser)}&{issuer}").status_code == 303


def test_a_new_key_is_fetched_and_an_unknown_one_not_again_and_again(door: Door):
    assert door.enter().status_code == 303
    door.idp.rotate()
    assert door.enter().status_code == 303
    assert door.idp.asked.count("/jwks") == 2
    door.idp.signed = lambda claims: jwt.encode(
        {"alg": "RS256", "kid": "third"}, claims, door.idp.key
    )
    for _ in range(3):
        assert "signed with an unknown key" in door.enter().text
    assert door.idp.asked.count("/jwks") == 2
    assert door.idp.asked.count("/.well-known/openid-configuration") == 1


def test_a_provider_that_is_down_is_said_to_be(home: Path):
    with provider() as gone:
        pass
    door = Door(home, gone)
    refused(door, door.browser().get("/oidc/start"), "does not answer as it should", 502)
    assert "quire user link" in door.browser().get("/oidc/start").text
    door.app.close()


CONFIGURATION, TOKEN, JWKS = "/.well-known/openid-configuration", "/token", "/jwks"


@pytest.mark.parametrize("path", [CONFIGURATION, TOKEN, JWKS])
@pytest.mark.parametrize("how", ["slow", "huge", "nonsense", "a list", "deep", "moved"])
def test_a_provider_that_misbehaves_is_not_waited_for(
    door: Door, monkeypatch: pytest.MonkeyPatch, path: str, how: str
):
    bodies = {
        "huge": b" " * (openid.LARGEST + 1) + b"{}", "nonsense": b"<html>", "a list": b"[1]",
        "deep": b"[" * 100_000,
    }  # fmt: skip
    if how == "slow":
        monkeypatch.setattr(openid, "SECONDS", 0.4)
        door.idp.slow.add(path)
    elif how == "moved":
        door.idp.moved.add(path)
    else:
        door.idp.instead[path] = bodies[how]
    browser = door.browser()
    if path == CONFIGURATION:
        answer = browser.get("/oidc/start")
    else:
        answer = browser.get(door.begin(browser))
    refused(door, answer, "does not answer as it should", 502)
    assert "/elsewhere" not in door.idp.asked


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "http://127.0.0.1:1"},
        {"authorization_endpoint": "http://evil.example/authorize"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
    ],
)
def test_a_configuration_that_leads_elsewhere_is_refused(door: Door, metadata: dict[str, Any]):
    door.idp.metadata = metadata
    refused(door, door.browser().get("/oidc/start"), "rovider", 502)


def test_a_client_secret_goes_into_the_form_where_the_provider_wants_it(door: Door):
    door.idp.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    seen: list[dict[str, str]] = []

    def exchanged(form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        seen.append(form)
        return 400, {"error": "<b>"}

    door.idp.exchanged = exchanged  # type: ignore[method-assign]
    refused(door, door.enter(), "was not accepted")
    assert seen[0]["client_secret"] == SECRET


def test_who_is_unknown_is_refused_and_nobody_is_added(door: Door):
    door.idp.person["email"] = "eve@example.org"
    refused(door, door.enter(), "has no account here")
    assert [each["name"] for each in access.list_users(door.caller)] == ["ada@example.org", "root"]


def test_an_identity_stays_with_its_user(door: Door):
    assert door.enter().status_code == 303
    # The address has changed at the provider; the person is the same.
    door.idp.person["email"] = "lovelace@example.org"
    assert door.enter().status_code == 303
    assert {each["user"] for each in access.list_sessions(door.caller)} == {"ada@example.org"}
    # Somebody else has got the old address.
    door.idp.person |= {"sub": "s-2", "email": "Ada@Example.org"}
    answer = door.enter()
    assert (answer.status_code, "somebody else there" in answer.text) == (401, True)
    access.disable_user(door.caller, "ada@example.org")
    refused(door, door.enter(), "is of a user who is disabled")
    # Who adds the user again decides that it is the new person.
    access.create_user(door.caller, "ada@example.org", "viewer")
    assert door.enter().status_code == 303


def test_rules_say_who_may_and_what_new_users_become(home: Path, idp: Identities):
    rules = ("groups:staff=acme/admin", "email:guest@other.example=acme/viewer",
             "domain:example.org=default/member")  # fmt: skip
    door = Door(home, idp, oidc_allow=rules, oidc_create_users=True)
    made = []
    for sub, email, groups in (
        ("1", "ada@example.org", []), ("2", "bob@example.org", ["x", "staff"]),
        ("3", "guest@other.example", None), ("4", "eve@sub.example.org", "staff?"),
        ("5", "eve@example.org.evil.example", []), ("6", "zoe@elsewhere.example", "staff"),
    ):  # fmt: skip
        idp.person = {"sub": sub, "email": email, "email_verified": True, "groups": groups}
        browser = door.browser()
        answer = door.enter(browser)
        if answer.status_code == 303:
            browser.headers["Cookie"] = answer.headers["set-cookie"].partition(";")[0]
            me = browser.get("/api/me").json()
            made.append((me["user"], me["tenant"], me["role"]))
        else:
            assert "is not among those who may sign in here" in answer.text
    assert made == [
        ("ada@example.org", "default", "member"),
        ("bob@example.org", "acme", "admin"),
        ("guest@other.example", "acme", "viewer"),
        ("zoe@elsewhere.example", "acme", "admin"),
    ]
    # A role that was changed here is not changed back.
    access.set_role(door.caller, "ada@example.org", "viewer")
    idp.person = {"sub": "1", "email": "ada@example.org", "email_verified": True}
    assert door.enter().status_code == 303
    roles = {each["name"]: each["role"] for each in access.list_users(door.caller)}
    assert roles["ada@example.org"] == "viewer"
    door.app.close()


def test_a_rule_lets_known_users_in_and_adds_nobody_by_itself(home: Path, idp: Identities):
    door = Door(home, idp, oidc_allow=("domain:example.org=default/member",))
    access.create_user(door.caller, "ada@example.org", "admin")
    assert door.enter().status_code == 303
    idp.person = {"sub": "2", "email": "bob@example.org", "email_verified": True}
    assert "has no account here" in door.enter().text
    assert len(access.list_users(door.caller)) == 2
    door.app.close()


def test_nothing_that_comes_back_is_a_place_to_go_or_a_script(door: Door):
    browser = door.browser()
    path = door.begin(browser) + "&next=//evil.example&redirect=https://evil.example"
    assert browser.get(path).headers["location"] == "/"
    door.begin(browser)
    answer = browser.get("/oidc/callback", params={"error": "<script>alert(1)</script>"})
    assert (answer.status_code, "<script>" in answer.text) == (401, False)
    assert "the provider has refused it" in answer.text.lower()
    assert browser.get("/oidc/callback", params={"code": "x" * 5000}).status_code == 422


def test_failed_sign_ins_are_limited_as_others_are(door: Door):
    door.idp.twist = {"nonce": None}
    for _ in range(12):
        door.enter()
    assert len(door.refusals()) <= 10


def test_the_button_is_there_only_with_a_provider(door: Door, tmp_path: Path):
    page = door.browser().get("/sign-in").text
    assert 'href="/oidc/start"' in page
    assert "quire user link" in page
    blank.put(tmp_path / "other")
    app = scratch_app(tmp_path / "other", user="ada")
    client = signing.stranger(signing.api_of(app))
    assert "/oidc/start" not in client.get("/sign-in").text
    assert {client.get(f"/oidc/{each}").status_code for each in ("start", "callback")} == {404}
    app.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"oidc_issuer": "http://idp.example"}, "is not an https URL"),
        ({"oidc_issuer": "ftp://idp.example"}, "is not an https URL"),
        ({"oidc_client_id": ""}, "QUIRE_OIDC_CLIENT_ID: is empty"),
        ({"public_url": ""}, "QUIRE_PUBLIC_URL: is empty"),
        ({"oidc_create_users": True}, "needs QUIRE_OIDC_ALLOW"),
    ],
)
def test_settings_that_cannot_be_are_refused(home: Path, given: dict[str, Any], said: str):
    right = {"oidc_issuer": "https://idp.example", "oidc_client_id": "q",
             "public_url": "https://quire.example"}  # fmt: skip
    load({}, home=home, **right)
    with pytest.raises(BadInput, match=said):
        load({}, home=home, **{**right, **given})


@pytest.mark.parametrize(
    "rule", ["example.org", "domain:x", "domain:x=member", "domain:x=a/king", "=a/member",
             "domain:x=a/instance-admin", "domain:=a/member"],
)  # fmt: skip
def test_a_rule_that_says_nothing_stops_the_start(home: Path, idp: Identities, rule: str):
    with pytest.raises(BadInput, match="QUIRE_OIDC_ALLOW"):
        Door(home, idp, oidc_allow=(rule,))
