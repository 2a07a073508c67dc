"""The page of one's own sessions and tokens, by forms without JavaScript."""

from __future__ import annotations

from quire.control import access
from tests import signing
from tests.web.conftest import Front


def test_sessions_are_listed_and_ended_one_by_one_and_all_others(each_front: Front):
    here = each_front.visitor("viewer")
    phone, laptop, desk = (signing.by_session(each_front.api, "viewer") for _ in range(3))
    other = signing.by_session(each_front.api, "admin")
    shown = here.get("/account")
    assert shown.text.count("this one") == 1
    assert "testclient" in shown.text
    caller = signing.member(each_front.api, "viewer")
    sessions = access.list_sessions(caller, user="viewer")
    assert len(sessions) == 4
    lost = sessions[2]["id"]  # latest first: the phone
    page = here.send(shown, f"/account/sessions/{lost}/end")
    assert phone.get("/api/me").status_code == 401
    assert {laptop.get("/api/me").status_code, desk.get("/api/me").status_code} == {200}
    page = here.send(page, "/account/sessions/end-others")
    assert "1 session" in page.text
    assert {laptop.get("/api/me").status_code, desk.get("/api/me").status_code} == {401}
    assert other.get("/api/me").status_code == 200
    assert not page.has_form("/account/sessions/end-others")
    noted = access.read_audit(caller, action="session.end")[0]
    assert noted["detail"] == {"others": 2}


def test_of_others_nothing_is_listed_and_nothing_ended(front: Front):
    admin = front.visitor()
    theirs = signing.by_session(front.api, "member")
    caller = signing.member(front.api, "member")
    token = access.create_token(caller, "of a member", user="member")
    [session] = access.list_sessions(caller, user="member")
    page = admin.get("/account")
    assert "of a member" not in page.text
    assert not page.has_form(f"/account/sessions/{session['id']}/end")
    client = signing.by_session(front.api, "instance-admin")
    for place in (f"sessions/{session['id']}/end", f"tokens/{token['id']}/revoke"):
        assert client.post(f"/account/{place}").status_code == 404
    assert theirs.get("/api/me").status_code == 200


def test_tokens_are_listed_with_their_use_and_revoked(front: Front):
    here = front.visitor("viewer")
    caller = signing.member(front.api, "viewer")
    token = access.create_token(caller, "for reports", user="viewer")
    program = signing.stranger(front.api)
    program.headers["Authorization"] = f"Bearer {token['token']}"
    assert "testclient" not in here.get("/tokens").text
    assert program.get("/api/me").status_code == 200
    [used] = access.list_tokens(caller, user="viewer")
    assert used["address"] == "testclient"
    page = here.get("/account")
    assert "for reports" in page.text
    here.send(page, f"/account/tokens/{token['id']}/revoke")
    assert program.get("/api/me").status_code == 401


def test_a_session_ends_the_others_over_the_api(front: Front):
    phone, laptop = (signing.by_session(front.api, "member") for _ in range(2))
    [current] = [s for s in laptop.get("/api/sessions").json()["items"] if s["current"]]
    assert current["address"] == "testclient"
    assert laptop.delete("/api/sessions").json() == {"count": 1}
    assert (phone.get("/api/me").status_code, laptop.get("/api/me").status_code) == (401, 200)
    assert laptop.delete("/api/sessions").json() == {"count": 0}
