"""Promise G9: equal inputs have equal keys; a setting changes the key of its stage and none before.

A key that is too coarse shows old work as if it were new. One that is too fine does work twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.ingest.fetch import options_of
from quire.model.pipeline import Pipeline, digest, digests, text_digest
from quire.parse import formats
from quire.store.documents import admission
from tests import documents
from tests.shelf import FUSED, PLAIN, Shelf

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
pipelines = st.builds(
    lambda **given: Pipeline().merged(given),
    page_size=st.integers(1, 50),
    small_size=st.integers(0, 50),
    row_size=st.integers(1, 5000),
    chunk_tokens=st.integers(100, 1000),
    overlap=st.integers(0, 50),
    delimiter=st.sampled_from(["", "\n\n", "---"]),
    ocr=st.sampled_from(["auto", "always", "never"]),
    language=st.sampled_from(["auto", "de", "en"]),
    embedder=st.sampled_from(["wordllama", "none"]),
    thumbnails=st.booleans(),
)
#: The first stage that a setting matters to; later ones follow from it.
STAGES = {
    "page": {"parser", "ocr", "ocr_languages", "row_size", "layout"},
    "cut": {"chunk_tokens", "overlap", "delimiter", "language"},
    "vector": {"embedder"},
    "none": {"page_size", "small_size", "thumbnails", "propagate_deletions"},
}
PDF, CSV, HTML = "application/pdf", "text/csv", "text/html"


def page_key(p: Pipeline, media_type: str) -> str:
    return digest(formats.recipe(media_type, options_of(p)))


def cut_key(p: Pipeline) -> str:
    return digest(p.cut())


@given(values)
def test_equal_values_have_equal_digests_however_their_keys_are_ordered(value: Any):
    turned = json.loads(json.dumps(value), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert digest(value) == digest(turned)


@given(st.text(), st.lists(st.text()), st.text())
def test_many_digests_are_those_of_each(kind: str, parts: list[str], recipe: str):
    assert list(digests(kind, parts, recipe)) == [digest(kind, part, recipe) for part in parts]


@given(st.lists(st.text(), max_size=5), st.lists(st.text(), max_size=5))
def test_different_lists_of_parts_have_different_digests(some: list[str], others: list[str]):
    # Joining the parts would make ("ab", "c") and ("a", "bc") the same.
    assert (digest(*some) == digest(*others)) == (some == others)


@given(st.text(alphabet=st.characters()), st.text(alphabet=st.characters()))
def test_texts_have_the_same_digest_only_if_they_are_the_same(one: str, other: str):
    assert (text_digest(one) == text_digest(other)) == (one == other)


def test_half_a_character_has_a_digest_too():
    assert digest("\ud800") != digest("\udc00")
    assert text_digest("\ud800") != text_digest("?")


@given(pipelines)
def test_settings_survive_being_stored(p: Pipeline):
    stored = admission.canonical_json(asdict(p))
    assert Pipeline().merged(json.loads(stored)) == p
    assert admission.canonical_json(asdict(Pipeline().merged(json.loads(stored)))) == stored


@given(pipelines, pipelines)
def test_equal_settings_have_equal_keys_and_other_ones_that_matter_have_not(
    one: Pipeline, other: Pipeline
):
    differ = {name for name, value in asdict(one).items() if asdict(other)[name] != value}
    assert (cut_key(one) == cut_key(other)) == (not differ & STAGES["cut"])
    assert (page_key(one, CSV) == page_key(other, CSV)) == ("row_size" not in differ)
    assert (page_key(one, PDF) == page_key(other, PDF)) == ("ocr" not in differ)
    # What is written needs no OCR, and what has no rows no row size.
    assert page_key(one, HTML) == page_key(other, HTML)


def test_every_setting_of_a_corpus_has_its_stage():
    assert set().union(*STAGES.values()) == set(asdict(Pipeline()))


def test_the_same_bytes_read_as_another_type_have_another_key():
    keys = {page_key(Pipeline(), each) for each in formats.FORMATS}
    assert len(keys) == len(formats.FORMATS)


# --------------------------------------------------------------------- through the pipeline


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path / "home", tmp_path / "in")
    words = "The tide turns and the pilot waits for it at the quay. " * 40
    shelf.put("a.pdf", documents.pdf(*[f"Page {n}. {words}" for n in range(1, 6)]))
    shelf.put("b.html", f"<p>{words}</p>")
    # Other words: a row is not torn, so its parts would be chunks of the others too.
    waves = words.replace("tide", "wave")
    shelf.put("c.csv", "".join(f"{n},{waves}\n" for n in range(10)))
    yield shelf
    shelf.assert_healthy()
    shelf.close()


CHANGES = {
    "page_size": 3, "small_size": 9, "row_size": 7, "chunk_tokens": 100, "overlap": 5,
    "delimiter": "tide", "ocr": "auto", "ocr_languages": "de", "language": "de",
    "embedder": "none", "thumbnails": "true", "propagate_deletions": "true",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_changed_setting_does_the_work_of_its_stage_and_of_none_before(shelf: Shelf, name: str):
    shelf.ingest(settings=FUSED)
    before = {row.name: row.chunks for row in shelf.rows("documents")}
    shelf.ingest(settings={**FUSED, name: CHANGES[name]})
    ledgers = {each: shelf.ledger(each) for each in before}
    read = {each for each, ledger in ledgers.items() if "pages_made" in ledger}
    embedded = {each for each, ledger in ledgers.items() if "vectors_made" in ledger}
    expected = {"row_size": {"c.csv"}, "ocr": {"a.pdf"}}.get(name, set())
    assert read == expected
    if name in STAGES["cut"] - {"language"}:
        assert embedded == set(before)
    elif name not in ("row_size", "ocr"):
        assert embedded == set()
    assert {row.state for row in shelf.rows("documents")} == {"success"}


def test_a_setting_changed_back_takes_over_what_was_there(shelf: Shelf):
    shelf.ingest(settings=PLAIN)
    first = shelf.index()
    for name, value in CHANGES.items():
        shelf.ingest(settings={**PLAIN, name: value})
        shelf.ingest(settings=PLAIN)
        assert shelf.index() == first
        assert all("pages_made" not in shelf.ledger(each) for each in ("a.pdf", "b.html", "c.csv"))
