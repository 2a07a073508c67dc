"""An embedder behind HTTP, against a real server on loopback that answers as it is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from quire.errors import BadInput, Permanent, Stopped, Transient
from quire.text.embed.embedder import open_embedder
from quire.text.embed.openai import OpenAIEmbedder, OpenAIOptions
from tests.embedding import HANGS, Server, Waiting, serving, vectors


@pytest.fixture
def server() -> Iterator[Server]:
    yield from serving()


@pytest.fixture
def opened(server: Server) -> Iterator[Any]:
    made: list[OpenAIEmbedder] = []

    def open_(**options: Any) -> tuple[OpenAIEmbedder, Waiting]:
        time = Waiting()
        given = {"url": server.url, "dimensions": 3, "clock": lambda: time.now, "wait": time.wait}
        made.append(OpenAIEmbedder("small", OpenAIOptions(**{**given, **options})))
        return made[-1], time

    yield open_
    for endpoint in made:
        endpoint.close()


def test_vectors_come_back_in_order_and_of_length_one(server, opened):
    endpoint, _ = opened(key="secret")
    found = endpoint.embed(["a", "four", "", "  "])
    assert np.allclose(found[0] * np.sqrt(3), [1, 1, 1])
    assert found[1].argmax() == 0
    assert not found[2:].any()
    assert server.asked == [
        {
            "path": "/v1/embeddings",
            "model": "small",
            "input": ["a", "four"],
            "encoding_format": "float",
        }
    ]
    assert server.headers[0]["Authorization"] == "Bearer secret"
    assert endpoint.name == "openai:small-3"
    assert "secret" not in repr(endpoint.options)


def test_requests_are_bounded_by_texts_and_by_tokens(server, opened):
    endpoint, _ = opened(batch=3, batch_tokens=100)
    endpoint.embed(["a", "b", "c", "word " * 60, "word " * 60, "d"])
    sizes = [len(asked["input"]) for asked in server.asked]
    assert sizes == [3, 1, 2]


def test_an_overloaded_endpoint_is_asked_again_when_it_wishes(server, opened):
    endpoint, time = opened()
    server.script += [(429, {"Retry-After": "7"}, {}), (503, {}, {}), (500, {}, b"oops")]
    endpoint.embed(["a"], time.meanwhile)
    assert time.pauses == pytest.approx([7, 2, 4, 0], rel=0.26)
    assert "waits to retry (status 503: {})" in time.whys
    assert max(time.slices) <= 0.2
    assert len(server.asked) == 4


def test_a_retry_after_may_be_a_date_and_is_capped(server, opened):
    endpoint, time = opened()
    date = {"Date": "Mon, 16 Nov 2026 10:00:00 GMT"}
    server.script += [
        (429, {**date, "Retry-After": "Mon, 16 Nov 2026 10:00:09 GMT"}, {}),
        (429, {"Retry-After": "86400"}, {}),
        (429, {"Retry-After": "soon"}, {}),
    ]
    endpoint.embed(["a"], time.meanwhile)
    assert time.pauses == pytest.approx([9, 60, 4, 0], rel=0.26)


def test_a_query_does_not_wait_long_for_an_endpoint_that_is_overloaded(server, opened):
    endpoint, time = opened()
    server.script += [(503, {}, {}), (429, {"Retry-After": "11"}, {"error": "slow down"})]
    with pytest.raises(Transient, match=r"slow down.* for 11 s more, longer than a query") as error:
        endpoint.embed(["a"])
    assert error.value.retry_after == 11
    assert time.now <= 1.3


def test_a_stop_ends_a_wait_at_its_next_slice(server, opened):
    endpoint, time = opened()

    def meanwhile(why: str | None) -> None:
        if time.now >= 3:
            raise Stopped("job 1 was stopped")

    server.script += [(429, {"Retry-After": "60"}, {})]
    with pytest.raises(Stopped):
        endpoint.embed(["a"], meanwhile)
    assert 3 <= time.now <= 3.3


def test_a_request_is_a_part_of_what_the_limit_gives_in_a_minute(server, opened):
    endpoint, time = opened(tokens_per_minute=400)
    endpoint.embed(["word " * 60] * 3 + ["word " * 300], time.meanwhile)
    assert [len(asked["input"]) for asked in server.asked] == [1, 1, 1, 1]
    assert time.whys == ["waits for the rate limit of the endpoint"] * len(time.slices)
    assert [each > 0 for each in time.pauses] == [False, True, True, True]


@pytest.mark.parametrize(
    "answer",
    [
        (0, {}, b""),
        (200, {}, b"<html>"),
        (200, {}, {"data": []}),
        (200, {}, {"data": [{"embedding": None}]}),
        (200, {}, []),
        (502, {}, b"bad gateway"),
    ],
    ids=["cut off", "not JSON", "short", "no numbers", "a list", "502"],
)
def test_what_may_pass_later_is_tried_again_and_then_transient(server, opened, answer):
    endpoint, time = opened(attempts=3)
    server.script += [answer]
    assert endpoint.embed(["a"]).any()
    server.script += [answer] * 3
    with pytest.raises(Transient, match="no usable response after 3 attempts") as error:
        endpoint.embed(["a"], time.meanwhile)
    assert error.value.retry_after is not None
    assert [each > 0 for each in time.pauses] == [True, True, False]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((401, {}, {"error": "no key"}), "status 401 .*no key.*Check its key"),
        ((400, {}, {"error": "too long"}), "status 400 .*too long"),
        ((200, {}, vectors(["a"], 4)), "expected 3, got 4"),
        ((200, {}, b'{"data": [{"embedding": [1, NaN, 1]}]}'), "not finite"),
        ((200, {}, b'{"data": [{"embedding": [1, 1e99, 1]}]}'), "not finite"),
    ],
)
def test_what_will_not_pass_fails_at_once(server, opened, answer, words):
    endpoint, time = opened()
    server.script += [answer]
    with pytest.raises(Permanent, match=words):
        endpoint.embed(["a"])
    assert time.slices == []


def test_an_endpoint_that_is_not_there_is_transient(opened):
    endpoint, _ = opened(url="http://127.0.0.1:9/v1", attempts=2)
    with pytest.raises(Transient, match="ConnectError"):
        endpoint.embed(["a"])


def test_a_timeout_is_transient(server, opened):
    endpoint, _ = opened(attempts=1, timeout=0.2)
    server.script += [(HANGS, {}, b"")]
    with pytest.raises(Transient, match="Timeout"):
        endpoint.embed(["a"])


def test_bad_unicode_is_replaced(server, opened):
    endpoint, _ = opened()
    endpoint.embed(["a\ud800b"])
    assert server.asked[0]["input"] == ["a\ufffdb"]


def test_dimensions_that_nobody_gave_are_those_of_the_first_answer(server, opened):
    endpoint, _ = opened(dimensions=0)
    assert (endpoint.name, endpoint.dimensions) == ("openai:small", 0)
    assert endpoint.embed(["a", "", "b"]).shape == (3, 3)
    assert endpoint.dimensions == 3
    server.script += [(200, {}, vectors(["a"], 4))]
    with pytest.raises(Permanent, match="expected 3, got 4"):
        endpoint.embed(["a"])
    endpoint.detect_dimensions()
    assert len(server.asked) == 2  # it knew


@pytest.mark.parametrize("sizes", [(3, 4), (0, 0)])
def test_an_answer_of_no_one_length_teaches_nothing(server, opened, sizes):
    endpoint, _ = opened(dimensions=0)
    rows = [{"index": n, "embedding": [1.0] * size} for n, size in enumerate(sizes)]
    server.script += [(200, {}, {"data": rows})]
    with pytest.raises(Permanent, match="expected one number"):
        endpoint.embed(["a", "b"])
    assert endpoint.dimensions == 0
    endpoint.detect_dimensions()
    assert endpoint.dimensions == 3


def test_an_endpoint_needs_a_url_and_a_model():
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("openai:", {"url": "http://127.0.0.1", "dimensions": 3}),
        ("openai:small", {"dimensions": 3}),
    ]
    for name, options in wrong:
        with pytest.raises(BadInput, match=r"needs a model .*Set QUIRE_EMBED_URL"):
            open_embedder(name, **options)
    endpoint = open_embedder("openai:small", url="nowhere", dimensions=3)
    with pytest.raises(BadInput, match="not a URL"):
        endpoint.embed(["a"])
