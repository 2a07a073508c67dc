"""Validate submissions. Each error says what is wrong and what is accepted."""

import graphlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from quire.errors import BadInput
from quire.model.records import MAX_PRIORITY, MIN_PRIORITY, Submission

#: The end of the year 9999; databases cannot store later times.
LATEST = 253_402_300_799.0
LONGEST = 200
#: Lists and objects of a payload inside each other: what looks into one calls itself for each.
MAX_DEPTH = 100
_settings = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_new_encoder: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
# Created once: `JSONEncoder.encode` creates one per call, which takes longer than a small payload.
# Without a memory of what it is inside of (None), a circular payload ends as a RecursionError.
_parts: Callable[[object, int], tuple[str, ...]] = _new_encoder(
    None, _settings.default, json.encoder.encode_basestring_ascii, None, ":", ",", *[False] * 3
)


def payload(submission: Submission, limit: int) -> str:
    """Encode the payload; raise BadInput if it is not a JSON object or too large."""
    if not isinstance(submission.payload, dict):
        raise BadInput(
            f"payload: expected a JSON object, got {type(submission.payload).__name__}. "
            "Nothing was submitted."
        )
    try:
        text = encoded(submission.payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"payload: not JSON ({error}). Nothing was submitted.") from error
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(submission.payload):
        raise BadInput(
            f"payload: lists and objects are nested more than {MAX_DEPTH} deep. Nothing was "
            "submitted."
        )
    if "\\u0000" in text and _has_nul(submission.payload):
        raise BadInput("payload: a NUL character cannot be stored. Nothing was submitted.")
    if len(text) > limit:
        raise BadInput(
            f"payload: {len(text):,} bytes, the limit is {limit:,} (QUIRE_PAYLOAD_MAX_BYTES). "
            "Nothing was submitted; pass a reference to the content instead."
        )
    return text


def encoded(payload: Any) -> str:
    """Encode a payload as it is stored."""
    return "".join(_parts(payload, 0))


def priority(value: object) -> None:
    """Refuse a priority outside 1 to 10."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not (MAX_PRIORITY <= value <= MIN_PRIORITY)
    ):
        raise BadInput(
            f"priority: {value!r} is not a whole number from {MAX_PRIORITY} (highest) to "
            f"{MIN_PRIORITY} (lowest)."
        )


def key(value: str | None) -> str | None:
    """Check an idempotency key."""
    if value is not None:
        _text("idempotency key", value)
    return value


def are_alike(given: Sequence[Submission]) -> bool:
    """Tell whether submissions differ in nothing but their payloads.

    Compared by identity, because `True == 1`. Equal values that are not identical only cost time.
    """
    first = given[0]
    kind, priority, run_at, after = first.kind, first.priority, first.run_at, first.after
    failure, platform, account, ref = (
        first.after_failure, first.platform, first.account, first.ref,
    )  # fmt: skip
    cost, attempts = first.cost, first.max_attempts
    for each in given:
        if not (
            each.kind is kind and each.priority is priority and each.run_at is run_at
            and each.after is after and each.after_failure is failure and each.ref is ref
            and each.platform is platform and each.account is account
            and each.cost is cost and each.max_attempts is attempts
        ):  # fmt: skip
            return False
    return True


def submissions(given: Sequence[Submission], *, alike: bool = False) -> None:
    """Check ranges, references and cycles; of submissions that are alike, only the first's."""
    for submission in given[:1] if alike else given:
        one(submission)
    if any(submission.after or submission.ref is not None for submission in given):
        _references(given)


def _references(given: Sequence[Submission]) -> None:
    refs = [submission.ref for submission in given if submission.ref is not None]
    if len(set(refs)) < len(refs):
        twice = sorted({ref for ref in refs if refs.count(ref) > 1})
        raise BadInput(f"ref {twice[0]!r}: used by two jobs of this request.")
    known = set(refs)
    for submission in given:
        for before in submission.after:
            if isinstance(before, str) and before not in known:
                raise BadInput(f"after {before!r}: no job of this request has that ref.")
    _no_cycle(given)


def one(submission: Submission) -> None:
    """Check everything but the kind and the payload."""
    priority(submission.priority)
    run_at = submission.run_at
    if run_at is not None and not (_is_number(run_at) and 0 <= run_at <= LATEST):
        raise BadInput(f"run_at: {submission.run_at!r} is not a time between 1970 and 9999.")
    if submission.after_failure not in ("cancel", "run"):
        raise BadInput(f"after_failure: {submission.after_failure!r} is not 'cancel' or 'run'.")
    if not _is_number(submission.cost) or not 0 < submission.cost <= 1e9:
        raise BadInput(f"cost: {submission.cost!r} is not a number above 0 and up to 1e9.")
    if submission.max_attempts is not None and not _is_count(submission.max_attempts, 1000):
        raise BadInput(f"max_attempts: {submission.max_attempts!r} is not between 1 and 1000.")
    _names(submission)


def _names(submission: Submission) -> None:
    _storable("kind", submission.kind)
    if submission.platform is not None:
        _text("platform", submission.platform)
    if submission.account is not None:
        _text("account", submission.account)
    if submission.ref is not None:
        _text("ref", submission.ref)
    if not isinstance(submission.after, (list, tuple)):
        raise BadInput(f"after: {submission.after!r} is not a list of job ids and refs.")
    for before in submission.after:
        if not isinstance(before, str) and not _is_count(before, 2**63 - 1):
            raise BadInput(f"after: {before!r} is not a job id.")


def _text(name: str, value: object) -> None:
    """Check that a text is short and can be stored."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST:
        got = f"{len(value)}" if isinstance(value, str) else type(value).__name__
        raise BadInput(f"{name}: expected 1 to {LONGEST} characters, got {got}.")
    _storable(name, value)


def _storable(name: str, value: str) -> None:
    if "\0" in value or not is_unicode(value):
        raise BadInput(f"{name}: {value!r} contains a character that cannot be stored.")


def is_unicode(value: str) -> bool:
    """Tell whether a text can be encoded in UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _is_deep(payload: dict[str, Any]) -> bool:
    level: list[Any] = [payload]
    for _ in range(MAX_DEPTH):
        inside = [
            each
            for one in level
            for each in (one.values() if isinstance(one, dict) else one)
            if isinstance(each, dict | list | tuple)
        ]
        if not inside:
            return False
        level = inside
    return True


def _has_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_has_nul(each) for pair in value.items() for each in pair)
    return isinstance(value, list | tuple) and any(_has_nul(each) for each in value)


def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LATEST  # not so for NaN


def _no_cycle(given: Sequence[Submission]) -> None:
    graph = {
        submission.ref: [before for before in submission.after if isinstance(before, str)]
        for submission in given
        if submission.ref is not None
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        round_trip = " → ".join(str(ref) for ref in error.args[1])
        raise BadInput(
            f"after: the jobs form a dependency cycle ({round_trip}). Nothing was submitted."
        ) from error
