"""Tokens that are bound to a corpus: it is all there is for them. The gate is the real one."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from quire.api.models.access import Token
from quire.clock import Instant
from quire.control import access, corpora
from quire.errors import BadInput, NotFound
from quire.store import Connection
from quire.store.documents import corpora as stored
from quire.web import server
from tests import signing
from tests.api.house import PLAIN, House


def bound(house: House, corpus: str = "letters", scope: str = "write", **more: Any) -> TestClient:
    """A client of a member's token for one corpus, which is made if missing."""
    caller = signing.member(house.api, "member")
    if corpus not in [each["name"] for each in corpora.listed(caller)]:
        corpora.create(caller, corpus, PLAIN)
    made = access.create_token(caller, corpus, [scope], user="member", corpus=corpus, **more)
    client = signing.stranger(house.api)
    client.headers["Authorization"] = f"Bearer {made['token']}"
    return client


def send(house: House, client: TestClient, name: str, text: str, corpus: str | None = None) -> int:
    """Upload a text and take it in; returns the document."""
    params = {"name": name} | ({"corpus": corpus} if corpus else {})
    made = client.post("/api/documents", params=params, content=text.encode())
    assert made.status_code == 201, made.text
    house.shelf.drain()
    return int(made.json()["documents"][0]["id"])


def names(client: TestClient, **params: Any) -> list[str]:
    return [each["name"] for each in client.get("/api/documents", params=params).json()["items"]]


def test_it_reads_searches_and_ingests_into_its_corpus_only(each_house: House):
    house = each_house
    letters, memos = bound(house), bound(house, "memos")
    own = send(house, letters, "letter.txt", "The tide turns at noon.")
    other = send(house, memos, "memo.txt", "The tide is a secret.")
    both = "The tide of both."
    shared = send(house, letters, "both.txt", both)
    assert send(house, memos, "both.txt", both) == shared
    assert (names(letters), names(memos)) == (["both.txt", "letter.txt"], ["both.txt", "memo.txt"])
    assert names(letters, corpus="letters") == names(letters)
    for client, here in ((letters, {own, shared}), (memos, {other, shared})):
        found = client.get("/api/search", params={"q": "tide", "mode": "text"}).json()["items"]
        assert {each["document_id"] for each in found} == here
        for each in (own, other, shared):
            expected = 200 if each in here else 404
            assert client.get(f"/api/documents/{each}").status_code == expected
            assert client.get(f"/api/documents/{each}/file").status_code == expected
    # That the document is in another corpus too is not told.
    shown = letters.get(f"/api/documents/{shared}").json()
    listed = letters.get("/api/documents").json()["items"]
    found = letters.get("/api/search", params={"q": "both", "mode": "text"}).json()["items"]
    assert [each["corpora"] for each in (shown, *listed, *found)] == [["letters"]] * 4
    whole = house.member.get(f"/api/documents/{shared}").json()
    assert whole["corpora"] == ["letters", "memos"]


def test_it_learns_no_word_and_no_synonym_of_another_corpus(each_house: House):
    house = each_house
    letters = bound(house)
    bound(house, "memos")
    send(house, letters, "letter.txt", "The tide turns at noon.")
    send(house, house.member, "memo.txt", "A porcupine of sales.", "memos")
    house.member.put("/api/synonyms/memos", json={"csv": "noon,midday,porcupine"})

    def found(client: TestClient, query: str) -> dict[str, Any]:
        params = {"q": query, "mode": "text", "explain": "true"}
        answer = client.get("/api/search", params=params).json()
        return {key: answer.get(key) for key in ("did_you_mean", "items")}

    whole = found(house.member, "porcupnie")
    assert whole["did_you_mean"] == {"porcupnie": "porcupine"}
    for query in ("porcupnie", "porcupine", "midday"):
        assert found(letters, query) == {"did_you_mean": None, "items": []}
    assert found(letters, "tdie")["did_you_mean"] == {"tdie": "tide"}
    assert letters.get("/api/synonyms/memos").status_code == 404
    assert letters.get("/api/synonyms/letters").json()["rows"] == 0
    assert letters.put("/api/synonyms/letters", json={"list": "finance"}).status_code == 403


def test_another_corpus_is_answered_as_one_that_does_not_exist(house: House):
    letters = bound(house)
    bound(house, "memos")
    send(house, house.member, "memo.txt", "secret", "memos")
    ingest = {"kind": "ingest", "payload": {"sources": ["https://example.org/a"]}}
    form = {"files": [("files", ("a.txt", b"a"))]}

    def answers(corpus: str) -> list[tuple[int, str]]:
        payload = {**ingest["payload"], "corpus": corpus}  # type: ignore[dict-item]
        asked = [
            letters.get("/api/documents", params={"corpus": corpus}),
            letters.get("/api/search", params={"q": "secret", "mode": "text", "corpus": corpus}),
            letters.get(f"/api/corpora/{corpus}"),
            letters.post("/api/documents", params={"name": "a", "corpus": corpus}, content=b"a"),
            letters.post("/api/documents", data={"corpus": corpus}, **form),  # type: ignore[arg-type]
            letters.post("/api/jobs", json={**ingest, "payload": payload}),
        ]
        return [(each.status_code, each.json()["detail"].replace(corpus, "?")) for each in asked]

    assert answers("memos") == answers("nowhere")
    assert {status for status, _ in answers("memos")} == {404}
    assert names(house.member) == ["memo.txt"]


def test_search_tells_nothing_of_other_corpora_by_score_correction_or_note(each_house: House):
    """The same questions, before and after other corpora are full of the words asked for."""
    house = each_house
    letters = bound(house)
    bound(house, "memos")
    send(house, letters, "tide.txt", "The tide turns at noon. The harbour is calm.")
    send(house, letters, "pilot.txt", "A pilot reads the harbour and the ledger of the tide.")
    asked = ("tide harbour", "harbor", "swordfish", "swordfsh tide", "ledgr", "name:tide tide",
             "name:pilot", "marées", '"the harbour"', "noon*")  # fmt: skip

    def answers() -> list[Any]:
        found = []
        for q in asked:
            params = {"q": q, "mode": "hybrid", "explain": "true"}
            answer = letters.get("/api/search", params=params)
            assert answer.status_code == 200, answer.text
            found.append({k: v for k, v in answer.json().items() if k != "took_ms"})
        return found

    before = answers()
    assert [bool(each["items"]) for each in before].count(True) >= 5
    others = ("swordfish swordfsh harbor ledgr tide. ", "La marée monte, les marées du port. ")
    for number in range(12):
        text = others[number % 2] * (number + 1)
        send(house, house.member, f"tide pilot {number}.txt", text, "memos")
    for was, now, q in zip(before, answers(), asked, strict=True):
        assert now == was, q


def test_a_job_goes_into_its_corpus_and_others_are_not_there(house: House):
    letters, memos = bound(house), bound(house, "memos")
    body = {"kind": "ingest", "payload": {"sources": ["https://example.org/a"]}}
    job = letters.post("/api/jobs", json=body).json()["id"]
    assert letters.get(f"/api/jobs/{job}").json()["payload"]["corpus"] == "letters"
    errand = house.submit(house.member)
    for client, job_id, expected in (
        (letters, job, 200),
        (memos, job, 404),
        (letters, errand, 404),
    ):
        for part in ("", "/events", "/files"):
            assert client.get(f"/api/jobs/{job_id}{part}").status_code == expected
    for refused in (
        {"kind": "errand"},
        {**body, "after": [errand]},
        {"kind": "ingest.document", "payload": {"document": 1}},
    ):
        answer = letters.post("/api/jobs", json=refused)
        assert (answer.status_code, "corpus letters" in answer.json()["detail"]) == (403, True)


def test_a_token_for_reading_does_not_write(house: House):
    reading = bound(house, scope="read")
    assert reading.post("/api/documents", params={"name": "a"}, content=b"a").status_code == 403
    assert reading.post("/api/jobs", json={"kind": "ingest", "payload": {}}).status_code == 403
    assert names(reading) == []


def test_it_ends_with_its_corpus_also_if_one_of_that_name_comes_back(each_house: House):
    letters = bound(each_house)
    assert letters.get("/api/me").json()["corpus"] == "letters"
    caller = signing.member(each_house.api, "member")
    corpora.delete(caller, "letters")
    for _ in range(2):
        refused = letters.get("/api/me")
        assert (refused.status_code, "was revoked" in refused.json()["detail"]) == (401, True)
        if not corpora.listed(caller):
            corpora.create(caller, "letters", {})


def test_jobs_of_a_corpus_that_was_deleted_are_not_those_of_the_next_one_of_its_name(
    house: House,
):
    letters = bound(house)
    body = {"kind": "ingest", "payload": {"sources": ["https://example.org/a"]}}
    job = letters.post("/api/jobs", json=body).json()["id"]
    assert letters.get(f"/api/jobs/{job}").status_code == 200
    corpora.delete(signing.member(house.api, "member"), "letters")
    house.shelf.clock.advance(1.0)
    again = bound(house)
    for part in ("", "/events", "/files"):
        assert again.get(f"/api/jobs/{job}{part}").status_code == 404


def test_a_token_made_while_its_corpus_is_deleted_is_no_token(each_house: House):
    letters = bound(each_house)
    app = each_house.shelf.app

    def act(conn: Connection, now: Instant) -> None:
        found = stored.find(conn, app.caller.tenant, "letters")
        assert found is not None
        stored.delete(conn, found.id)  # as if the token had been stored after this

    app.db.write(act)
    for ask in ({"name": "a.txt", "corpus": "letters"}, {"name": "a.txt"}):
        assert letters.post("/api/documents", params=ask, content=b"a").status_code == 401
    assert letters.get("/api/me").status_code == 401


def test_it_is_made_shown_and_used(house: House):
    signing.member(house.api, "member")
    house.plain_corpus("letters")
    session = signing.by_session(house.api, "member")
    made = session.post("/api/tokens", json={"name": "scanner", "corpus": "letters"})
    assert made.status_code == 201, made.text
    assert (made.json()["scopes"], made.json()["corpus"]) == (["read", "write"], "letters")
    program = signing.stranger(house.api)
    program.headers["Authorization"] = f"Bearer {made.json()['token']}"
    assert program.get("/api/corpora").json()["items"][0]["name"] == "letters"
    [listed] = [Token(**each) for each in session.get("/api/tokens").json()["items"]]
    assert (listed.corpus, bool(listed.last_used_at)) == ("letters", True)
    noted = access.read_audit(signing.member(house.api, "member"), action="token.create")[0]
    assert noted["detail"]["corpus"] == "letters"


def test_it_opens_no_page_of_the_dashboard(house: House):
    house.api = server.create(house.shelf.app)
    letters = bound(house)
    for place in ("/", "/jobs", "/documents", "/search", "/corpora", "/tokens", "/workers"):
        assert letters.get(place).status_code == 403


def test_a_bond_that_cannot_be_is_refused(house: House):
    admin = signing.member(house.api, "admin")
    corpora.create(admin, "letters", {})
    abroad = signing.member(house.api, "admin", tenant="other")
    for caller, corpus in ((admin, "nowhere"), (abroad, "letters")):
        with pytest.raises(NotFound, match="no such corpus"):
            access.create_token(caller, "t", corpus=corpus)
    with pytest.raises(BadInput, match="bound to a corpus"):
        access.create_token(admin, "t", ["admin"], corpus="letters")
    assert access.create_token(admin, "t", corpus="letters")["scopes"] == ["read", "write"]
