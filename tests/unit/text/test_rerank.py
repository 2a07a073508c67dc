"""Scores of a rerank endpoint: its protocol, what it gets wrong, and that it is left alone then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from quire.errors import BadInput, Permanent, QuireError, Transient
from quire.text.rerank.endpoint import PAUSE, Endpoint
from quire.text.rerank.reranker import open_reranker
from quire.text.rerank.scores import MAX_CHARS, MAX_QUERY_CHARS
from tests.reranking import DRIPS, HANGS, Server, results, serving


@pytest.fixture
def server() -> Iterator[Server]:
    yield from serving()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_texts_are_scored_in_their_order(server: Server):
    endpoint = Endpoint(server.url, "cross", "sk-1")
    server.score = lambda text: 0.9 if "moon" in text else 0.2
    assert endpoint.scores("tides", ["ships", "the moon", "x\ud800"]) == [0.2, 0.9, 0.2]
    [asked], [headers] = server.asked, server.headers
    assert asked == {
        "path": "/v1/rerank", "model": "cross", "query": "tides", "top_n": 3,
        "documents": ["ships", "the moon", "x\ufffd"],
    }  # fmt: skip
    assert headers["Authorization"] == "Bearer sk-1"
    assert endpoint.name == "cross"


def test_what_is_sent_is_bounded(server: Server):
    Endpoint(server.url, "cross").scores("q" * 10_000, ["x" * 9_000])
    [asked], [headers] = server.asked, server.headers
    assert len(asked["query"]) == MAX_QUERY_CHARS
    assert [len(each) for each in asked["documents"]] == [MAX_CHARS]
    assert "Authorization" not in headers


def test_logits_become_scores_and_other_names_are_read(server: Server):
    endpoint = Endpoint(server.url, "cross")
    server.script.append((200, {}, results([-4.0, 0.0, 1e9])))
    low, middle, high = endpoint.scores("q", ["a", "b", "c"])
    assert 0 < low < middle == 0.5 < high <= 1
    rows = results([0.3, 0.4])["results"]
    server.script.append((200, {}, {"object": "list", "data": rows}))
    assert endpoint.scores("q", ["a", "b"]) == [0.3, 0.4]


@pytest.mark.parametrize(
    ("status", "content", "error", "said"),
    [
        (500, b"oops", Permanent, "refused with status 500 .oops"),
        (401, b"", Permanent, "Check QUIRE_RERANK_KEY"),
        (429, {"message": "slow down"}, Permanent, "status 429"),
        (200, b"<html>", Permanent, "not an answer with scores"),
        (200, b"[" * 100_000, Permanent, "not an answer with scores"),
        (200, [1], Permanent, "not an answer with scores"),
        (200, {"results": 7}, Permanent, "not an answer with scores"),
        (200, {"results": [{"index": 0}]}, Permanent, "not an answer with scores"),
        (200, results([0.1]), Permanent, "a score for each of 2 texts, got 1"),
        (200, results([0.1, 0.2, 0.3]), Permanent, "a score for each of 2 texts, got 3"),
        (200, b'{"results":[{"index":0,"relevance_score":NaN},{"index":1,"relevance_score":1}]}',
         Permanent, "expected a score"),
        (200, b" " * (5 << 20), Permanent, "too long"),
        (HANGS, b"", Transient, "no answer"),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_an_error(
    server: Server, status: int, content: Any, error: type[QuireError], said: str
):
    endpoint = Endpoint(server.url, "cross", timeout=0.3 if status == HANGS else 20)
    server.script.append((status, {}, content))
    with pytest.raises(error, match=said):
        endpoint.scores("q", ["a", "b"])
    server.released.set()


def test_an_answer_that_drips_is_given_up(server: Server):
    clock = Clock()
    endpoint = Endpoint(server.url, "cross", timeout=5, clock=clock)

    def later(text: str) -> float:
        clock.now = 6.0
        return 0.5

    server.score = later
    server.script.append((DRIPS, {"content-length": "100"}, b"{"))
    with pytest.raises(Transient, match="no answer in 5 s"):
        endpoint.scores("q", ["a"])


def test_redirects_are_not_followed_and_nobody_is_no_answer(server: Server):
    elsewhere = server.url + "elsewhere"
    for status in (301, 302, 307, 308):
        server.script.append((status, {"location": elsewhere}, b""))
        with pytest.raises(Permanent, match=f"status {status}"):
            Endpoint(server.url, "cross", "sk-1").scores("q", ["a"])
    assert {each["path"] for each in server.asked} == {"/v1/rerank"}
    with pytest.raises(Transient, match=r"no answer \(ConnectError"):
        Endpoint("http://127.0.0.1:9", "cross").scores("q", ["a"])
    with pytest.raises(BadInput, match="not a URL"):
        Endpoint("ftp://127.0.0.1", "cross").scores("q", ["a"])


def test_an_endpoint_that_failed_is_left_alone_for_a_while(server: Server):
    clock = Clock()
    endpoint = Endpoint(server.url, "cross", clock=clock)
    server.script.append((503, {}, b""))
    with pytest.raises(Permanent):
        endpoint.scores("q", ["a"])
    clock.now = PAUSE / 2
    with pytest.raises(Transient, match="failed before and is asked again in 15 s"):
        endpoint.scores("q", ["a"])
    assert len(server.asked) == 1
    clock.now = PAUSE
    assert endpoint.scores("q", ["a"]) == [0.5]


def test_a_query_that_is_refused_does_not_stop_others(server: Server):
    endpoint = Endpoint(server.url, "cross", clock=Clock())
    for status in (400, 413, 422):
        server.script.append((status, {}, b"too long"))
        with pytest.raises(BadInput, match=f"status {status}"):
            endpoint.scores("q", ["a"])
    assert endpoint.scores("q", ["a"]) == [0.5]


def test_a_reranker_is_opened_once_and_off_by_default():
    assert open_reranker("", "", "") is None
    first = open_reranker("http://127.0.0.1:9", "cross", "k")
    assert first is open_reranker("http://127.0.0.1:9", "cross", "k")
    assert first is not open_reranker("http://127.0.0.1:9", "other", "k")
