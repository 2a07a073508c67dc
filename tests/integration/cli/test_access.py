"""`quire user` and `quire token` on a scratch home."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from quire.api.auth import authenticate
from quire.app import App
from quire.settings import load
from tests import signing

if TYPE_CHECKING:
    from tests.integration.cli.cli_command import Run

pytest_plugins = ["tests.integration.cli.cli_command"]


def test_tokens_are_made_listed_and_revoked(quire_on_each: Run):
    quire = quire_on_each
    made = quire("token", "create", "nightly", "--days", "30", "--scope", "write")
    assert made.code == 0
    token = made.out.strip()
    assert token.startswith("quire_")
    assert "not shown again" in made.err
    [listed] = quire("token", "list", "--json").json["items"]
    assert (listed["user"], listed["scopes"], listed["state"]) == (
        "ada",
        ["read", "write"],
        "active",
    )
    shown = quire("token", "list").out
    assert "nightly" in shown
    assert token not in shown
    assert listed["expires_at"] is not None
    other = quire("token", "create", "second", "--days", 0, "--json").json
    assert (other["scopes"], other["expires_at"]) == (["read", "write", "admin"], None)
    assert "revoked" in quire("token", "revoke", other["id"]).out
    assert quire("token", "revoke", listed["id"], "--json").json["state"] == "revoked"
    assert quire("token", "list", "--user", "bob", "--json").json["items"] == []


def test_users_are_added_given_roles_and_disabled(quire: Run):
    assert quire("user", "add", "bob").out.startswith("user bob has the role member.")
    assert quire("user", "role", "bob", "viewer").out == "user bob has the role viewer.\n"
    assert quire("user", "role", "bob", "admin", "--json").json["role"] == "admin"
    users = {each["name"]: each for each in quire("user", "list", "--json").json["items"]}
    # Whoever has the home is its first admin, and operates it.
    roles = {name: each["role"] for name, each in users.items()}
    assert roles == {"ada": "instance-admin", "bob": "admin"}
    assert quire("user", "role", "bob", "instance-admin", "--json").json["role"] == "instance-admin"
    quire("user", "role", "bob", "admin")
    assert "disabled" in quire("user", "disable", "bob").out
    assert quire("user", "disable", "bob", "--json").json["disabled_at"]
    listed = quire("user", "list").out
    assert "disabled" in listed
    assert "LAST SIGN-IN" in listed
    assert quire("user", "add", "bob", "--role", "viewer", "--json").json["disabled_at"] is None


def test_a_link_signs_in(quire: Run):
    made = quire("user", "link")
    path = made.out.strip().removeprefix("http://127.0.0.1:8750")
    assert path.startswith("/sign-in/")
    assert "Works once, for 15 minutes" in made.err
    app = App(load())
    client = signing.stranger(signing.api_of(app))
    assert client.post(path).status_code == 303
    assert client.get("/api/me").json()["user"] == "ada"
    assert client.cookies[authenticate.COOKIE]
    app.close()


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("0.0.0.0", "http://localhost:99/"),  # noqa: S104
        ("::1", "http://[::1]:99/"),
        ("quire.example", "http://quire.example:99/"),
    ],
)
def test_a_link_names_the_place_of_the_dashboard(
    quire: Run, monkeypatch: pytest.MonkeyPatch, host: str, place: str
):
    monkeypatch.setenv("QUIRE_API_HOST", host)
    monkeypatch.setenv("QUIRE_API_PORT", "99")
    made = quire("user", "link", "--json").json
    assert made["url"].startswith(f"{place}sign-in/")
    assert made["user"] == "ada"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("token", "revoke", "7"), "token 7: no such token"),
        (("token", "revoke", "x"), "token x: not a token id"),
        (("token", "revoke", "9" * 30), "no such token"),
        (("token", "create", "t", "--scope", "fly"), "scope: 'fly' is not one of"),
        (("token", "create", "t", "--days", "-1"), "days: -1 is not between 0 (never)"),
        (("token", "create", "t", "--user", "eve"), "user 'eve': no such user"),
        (("user", "add", "a/b"), "a name has"),
        (("user", "add", "ada"), "already exists"),
        (("user", "add", "bob", "--role", "king"), "role: 'king' is not one of"),
        (("user", "role", "eve", "admin"), "no such user"),
        (("user", "disable", "ada"), "last admin"),
        (("user", "role", "ada", "viewer"), "last admin"),
        (("user", "role", "ada", "admin"), "last instance admin"),
        (("user", "link", "eve"), "no such user"),
    ],
)
def test_what_cannot_be_is_refused(quire: Run, arguments: tuple[str, ...], said: str):
    quire("user", "link")
    ended = quire(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_an_empty_home_says_what_to_do(quire: Run):
    assert quire("user", "list").code == 1
    quire("submit", "noop")
    assert "quire up" in quire("user", "list").out
    assert "quire token create" in quire("token", "list").out
