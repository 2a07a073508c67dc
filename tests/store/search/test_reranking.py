"""A reranker orders the best hits; without its answer they keep the order of the search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.control.search import search
from quire.text.rerank.cross_encoder import CrossEncoder
from quire.text.rerank.endpoint import MAX_TEXTS, Endpoint
from tests import cross_encoders
from tests.reranking import Server, serving
from tests.store.shelf import Shelf
from tests.store.stage import Stage


@pytest.fixture
def shelf(stage: Stage) -> Shelf:
    return Shelf(stage)


@pytest.fixture
def server() -> Iterator[Server]:
    yield from serving()


def answer(shelf: Shelf, server: Server, query: str, **how: Any) -> dict[str, Any]:
    reranker = Endpoint(server.url, "cross")
    return search(shelf.db, shelf.tenant, query, mode="text", reranker=reranker, **how)


def test_hits_come_in_the_order_of_the_reranker(shelf: Shelf, server: Server):
    shelf.file("first", "tide tide tide")
    shelf.file("second", "the tide and the moon")
    shelf.file("other", "nothing of it")
    server.score = lambda text: 0.9 if "moon" in text else 0.1
    found = answer(shelf, server, "tide", explain=True)
    assert [hit["name"] for hit in found["items"]] == ["second", "first"]
    assert [hit["score"] for hit in found["items"]] == [0.9, 0.1]
    assert [hit["why"]["rerank"]["score"] for hit in found["items"]] == [0.9, 0.1]
    assert sorted(hit["why"]["rerank"]["before"] for hit in found["items"]) == [1, 2]
    assert found["reranked"] is True
    assert "note" not in found
    # It reads the name, which tells whose page this is; and the question without fields.
    [asked] = server.asked
    assert sorted(asked["documents"]) == ["first\ntide tide tide", "second\nthe tide and the moon"]
    assert answer(shelf, server, "tide name:first")["items"][0]["name"] == "first"
    assert server.asked[1]["query"] == "tide"


def test_the_first_hits_do_not_depend_on_the_limit_and_the_cost_is_bounded(
    shelf: Shelf, server: Server
):
    for n in range(MAX_TEXTS + 8):
        shelf.file(f"f{n}", f"tide {n} " + "and more " * (n % 7))
    server.score = lambda text: (hash_of(text) % 97) / 97
    many = answer(shelf, server, "tide", limit=100)["items"]
    few = answer(shelf, server, "tide", limit=5)["items"]
    assert [hit["name"] for hit in many[:5]] == [hit["name"] for hit in few]
    assert [len(asked["documents"]) for asked in server.asked] == [MAX_TEXTS] * 2
    scores = [hit["score"] for hit in many]
    assert len(many) == MAX_TEXTS + 8
    assert scores == sorted(scores, reverse=True)


def hash_of(text: str) -> int:
    return sum(map(ord, text)) * 31


def test_without_an_answer_the_order_is_that_of_the_search_and_it_says_so(
    shelf: Shelf, server: Server
):
    shelf.file("first", "tide tide tide")
    shelf.file("second", "the tide and the moon")
    plain = search(shelf.db, shelf.tenant, "tide", mode="text")
    server.score = lambda text: 0.9 if "moon" in text else 0.1
    for status, content in ((500, b"oops"), (200, b"oops"), (404, b"")):
        server.script.append((status, {}, content))
        found = answer(shelf, server, "tide", explain=True)
        assert [hit["name"] for hit in found["items"]] == [hit["name"] for hit in plain["items"]]
        assert [hit["score"] for hit in found["items"]] == [hit["score"] for hit in plain["items"]]
        assert found["note"].endswith("The log says why.")
        assert "oops" not in found["note"]
        assert found["reranked"] is False
        assert all("rerank" not in hit["why"] for hit in found["items"])


def test_a_cross_encoder_of_a_folder_orders_hits(shelf: Shelf, tmp_path: Path):
    shelf.file("first", "tide noon tide")
    shelf.file("second", "tide and a ship and the moon")
    encoder = CrossEncoder(cross_encoders.make(tmp_path / "tiny"))

    def ordered(query: str) -> list[str]:
        found = search(shelf.db, shelf.tenant, query, mode="text", reranker=encoder)
        assert found["reranked"]
        return [hit["name"] for hit in found["items"]]

    # Unlike the index of words, it counts small words, as long as something finds the page.
    assert ordered("and and and tide") == ["second", "first"]
    assert ordered("noon tide") == ["first", "second"]


def test_nothing_found_asks_nobody(shelf: Shelf, server: Server):
    assert answer(shelf, server, "nothing")["items"] == []
    assert server.asked == []
    assert "reranked" not in search(shelf.db, shelf.tenant, "nothing", mode="text")
