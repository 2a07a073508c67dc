"""Search, corpora, workers, status and docs by the API."""

from __future__ import annotations

import re
from typing import Any

from tests.api.house import PLAIN, House, sailing_book


def test_search_finds_passages_and_says_where_they_are(house: House):
    document_id = house.upload("book.pdf", sailing_book())
    found = house.viewer.get("/api/search", params={"q": "barley", "mode": "text"}).json()
    [hit] = found["items"]
    assert (hit["document_id"], hit["page"], found["mode"]) == (document_id, 2, "text")
    [mark] = hit["highlights"]
    assert hit["text"][slice(*mark)] == "barley"
    assert len(hit["boxes"]) == 1
    cases: list[tuple[dict[str, Any], int]] = [
        ({"corpus": "plain"}, 1),
        ({"document": document_id}, 1),
        ({"document": 99}, 0),
        ({"media_type": "application/pdf"}, 1),
        ({"media_type": "text/plain"}, 0),
        ({"where": "author=none"}, 0),
    ]
    for params, count in cases:
        answer = house.viewer.get("/api/search", params={"q": "barley", "mode": "text", **params})
        assert len(answer.json()["items"]) == count, params


def test_a_search_that_cannot_be_made_is_refused(house: House):
    cases: list[tuple[dict[str, Any], int]] = [
        ({}, 422),
        ({"q": ""}, 422),
        ({"q": " "}, 422),
        ({"q": "\0"}, 422),
        ({"q": "x" * 10_001}, 422),
        ({"q": "a", "mode": "magic"}, 422),
        ({"q": "a", "limit": 101}, 422),
        ({"q": "a", "where": "novalue"}, 422),
        ({"q": "a", "document": 2**63}, 422),
        ({"q": "a", "corpus": "none"}, 404),
        ({"q": '"* OR NEAR(', "mode": "text"}, 200),
    ]
    for params, status in cases:
        assert house.viewer.get("/api/search", params=params).status_code == status, params


def test_a_corpus_lives(each_house: House):
    member = each_house.member
    made = member.post("/api/corpora", json={"name": "a/b ü", "settings": PLAIN})
    assert made.status_code == 201
    place = made.headers["location"]
    assert place == "/api/corpora/a%2Fb%20%C3%BC"
    assert member.get(place).json() == made.json()
    assert member.post("/api/corpora", json={"name": "a/b ü"}).status_code == 409
    changed = member.patch(place, json={"settings": {"chunk_tokens": 100}}).json()
    assert (changed["changed"], changed["pipeline"]["chunk_tokens"]) == (["chunk_tokens"], 100)
    assert "chunked" in changed["consequence"]
    assert [each["name"] for each in member.get("/api/corpora").json()["items"]] == ["a/b ü"]
    assert member.delete(place).status_code == 204
    assert member.get(place).status_code == 404


def test_the_synonyms_of_a_corpus_are_replaced_and_removed(each_house: House):
    member, place = each_house.member, "/api/synonyms/a%2Fb"
    member.post("/api/corpora", json={"name": "a/b", "settings": PLAIN})
    assert member.get(place).json() == {"corpus": "a/b", "rows": 0, "csv": ""}
    made = member.put(place, json={"csv": "capex,capital expenditure"})
    assert (made.status_code, made.json()["rows"]) == (200, 1)
    assert member.put(place, json={"list": "finance"}).json()["rows"] > 40
    for body in (
        {}, {"csv": "alone"}, {"csv": "x" * 100_001}, {"csv": "a,b", "list": "finance"},
        {"list": "nowhere"}, {"csv": 'a,"b'},
    ):  # fmt: skip
        assert member.put(place, json=body).status_code == 422, body
    assert member.get(place).json()["rows"] > 40
    assert each_house.viewer.put(place, json={"list": "finance"}).status_code == 403
    assert member.delete(place).status_code == 204
    assert member.get(place).json()["rows"] == 0
    assert member.get("/api/synonyms/none").status_code == 404


def test_a_corpus_that_cannot_be_is_refused(each_house: House):
    for body in (
        {}, {"name": ""}, {"name": " a"}, {"name": "a\0"}, {"name": "x" * 101},
        {"name": "a", "settings": {"colour": "red"}}, {"name": "a", "settings": {"ocr": "maybe"}},
        {"name": "a", "settings": {"chunk_tokens": 10**30}}, {"name": "a", "more": 1},
        {"name": "a", "settings": {"parser": "nowhere"}},
    ):  # fmt: skip
        answer = each_house.member.post("/api/corpora", json=body)
        assert answer.status_code == 422, (body, answer.text)
    assert each_house.member.get("/api/corpora").json()["items"] == []
    assert each_house.member.get("/api/corpora/%00").status_code == 422


def test_status_counts_what_there_is(house: House):
    house.upload("a.txt", b"slate")
    house.submit(platform="web")
    status = house.viewer.get("/api/status").json()
    assert (status["jobs"]["completed"], status["jobs"]["pending"]) == (1, 1)
    assert (status["documents"]["success"], status["workers"]) == (1, [])
    told = house.viewer.get("/api/scheduler/status").json()
    assert told == {
        "running": [],
        "pending_counts": [{"platform": "web", "kind": "errand", "count": 1}],
        "worker_healthy": False,
    }
    assert house.viewer.get("/api/workers").json() == {"items": [], "next": None}


def test_running_jobs_are_listed_in_the_order_of_their_start(house: House):
    from quire import testing

    first, second = house.submit(priority=9), house.submit(priority=1)
    for _ in range(2):
        # A claim takes the most urgent one: the second job starts first.
        testing._claim(house.shelf.app, "default")
        house.shelf.clock.advance(1)
    running = house.viewer.get("/api/scheduler/status").json()["running"]
    assert sorted(job["id"] for job in running) == [first, second]
    assert [job["started_at"] for job in running] == sorted(job["started_at"] for job in running)


def test_the_docs_come_from_here_alone(house: House):
    page = house.stranger.get("/api/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    places = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert all(place.startswith("/api/") for place in places)
    for place in places:
        assert house.stranger.get(place).status_code == 200, place
    assert "<script>" not in page.text
    assert house.stranger.get("/api/docs/..%2f..%2fmain.py").status_code == 404


def test_what_is_not_there_is_a_problem_too(house: House):
    for method, path, status in [
        ("GET", "/api/nowhere", 404),
        ("PUT", "/api/jobs", 405),
        ("POST", "/api/status", 405),
    ]:
        answer = house.admin.request(method, path)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["x-content-type-options"] == "nosniff"
