"""A cross-encoder of a folder reads query and passage together, by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.errors import BadInput, Permanent
from quire.text.rerank.cross_encoder import MAX_TEXTS, CrossEncoder
from quire.text.rerank.reranker import open_reranker
from quire.text.rerank.scores import logistic
from tests import cross_encoders

QUERY, TEXTS = "the tide and the moon", ["ship", "the tide", "moon tide tide", "", "noon " * 5_000]
#: Pairs of equal words; `the` is twice in the query.
LOGITS = [-0.5, 2.5, 2.5, -0.5, -0.5]


@pytest.mark.parametrize(("classes", "place"), [(1, "model.onnx"), (2, "onnx/model.onnx")])
def test_each_text_gets_a_score(tmp_path: Path, classes: int, place: str):
    encoder = CrossEncoder(cross_encoders.make(tmp_path / "tiny", classes, place))
    assert encoder.scores(QUERY, TEXTS) == pytest.approx([logistic(each) for each in LOGITS])
    assert encoder.scores(QUERY, []) == []
    assert (encoder.name, encoder.most) == ("tiny", MAX_TEXTS)


def test_scores_do_not_depend_on_what_else_is_scored(tmp_path: Path):
    encoder = CrossEncoder(cross_encoders.make(tmp_path / "tiny"))
    alone = [encoder.scores("tide moon", [text])[0] for text in TEXTS]
    assert encoder.scores("tide moon", TEXTS) == pytest.approx(alone)


def test_a_folder_is_opened_once(tmp_path: Path):
    folder = cross_encoders.make(tmp_path / "tiny")
    assert open_reranker("", str(folder)) is open_reranker("", str(folder))


def test_what_is_no_model_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match=r"has no tokenizer\.json with model\.onnx"):
        CrossEncoder(tmp_path)
    folder = cross_encoders.make(tmp_path / "torn")
    (folder / "model.onnx").write_bytes(cross_encoders.model()[:200])
    with pytest.raises(BadInput, match="cannot be opened"):
        CrossEncoder(folder)
    (folder / "model.onnx").write_bytes(cross_encoders.model())
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(BadInput, match="cannot be opened"):
        CrossEncoder(folder)
    many = CrossEncoder(cross_encoders.make(tmp_path / "many", classes=3))
    with pytest.raises(Permanent, match="expected one finite score for each pair, got 3"):
        many.scores("tide", ["tide"])
