"""What a submission must look like; each refusal says what is accepted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.control import submission_checks
from quire.errors import BadInput
from quire.model.records import Submission

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=10,
)


@given(st.dictionaries(TEXTS, JSON))
def test_any_json_object_without_nul_is_a_payload(payload):
    assert json.loads(submission_checks.payload(Submission("k", payload), 1 << 20)) == payload


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.lists(st.integers())))
def test_any_value_for_any_field_is_accepted_or_refused_never_a_crash(value):
    for name in ("priority", "run_at", "cost", "max_attempts", "platform", "account", "ref"):
        wish = Submission("k", **{name: value})
        try:
            submission_checks.submissions([wish])
        except BadInput as error:
            assert name in str(error)


@given(st.one_of(st.text(), st.integers(), st.floats()))
def test_any_predecessor_is_accepted_or_refused_never_a_crash(value):
    try:
        submission_checks.submissions([Submission("k", after=(value,))])
    except BadInput as error:
        assert "after" in str(error)


def test_a_refusal_names_the_limit_and_the_setting():
    with pytest.raises(BadInput, match=r"1,234 .*QUIRE_PAYLOAD_MAX_BYTES|QUIRE_PAYLOAD_MAX_BYTES"):
        submission_checks.payload(Submission("k", {"x": "y" * 2000}), 1234)


def test_the_limit_counts_bytes_not_characters():
    text = submission_checks.payload(Submission("k", {"x": "ü" * 100}), 1 << 20)
    assert len(text.encode()) == len(text)
    with pytest.raises(BadInput):
        submission_checks.payload(Submission("k", {"x": "ü" * 100}), 300)


def test_a_circle_is_named_in_full():
    with pytest.raises(BadInput, match=r"a → b → a|b → a → b"):
        submission_checks.submissions(
            [Submission("k", ref="a", after=("b",)), Submission("k", ref="b", after=("a",))]
        )


def test_a_long_chain_is_no_circle():
    chain = [Submission("k", ref="0")]
    chain += [Submission("k", ref=str(n), after=(str(n - 1),)) for n in range(1, 2000)]
    submission_checks.submissions(chain)
