"""What the payload of a built-in kind holds, and which kinds users of the API may submit.

A payload is checked when it is submitted, and again before its task runs: it may have been stored
by an older version, or by someone who writes to the database. The payload of a plugin's kind is
whatever its handler takes.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from quire.errors import BadInput, Forbidden
from quire.model.pipeline import parsed

#: Returns None if a value is as expected, else what was expected.
Check = Callable[[Any], str | None]

#: Most sources and patterns of a job that comes over the API, and the longest of each.
MAX_SOURCES, MAX_SOURCE = 1_000, 4_000
MAX_PATTERNS, MAX_PATTERN = 20, 200
#: The same for a job of the operator, whose shell may expand a pattern to very many files.
_MANY = 10**6
MAX_NAME = 200
_LARGEST_ID = 2**63 - 1


class Payload(NamedTuple):
    """The fields of a kind's payload."""

    fields: Mapping[str, Check]
    required: tuple[str, ...] = ()
    #: Fields that only Quire itself adds.
    own: Mapping[str, Check] = {}
    #: Any other field is accepted as well.
    is_open: bool = False

    def check(self, kind: str, payload: Mapping[str, Any], *, is_own: bool = False) -> None:
        """Raise BadInput if a field is unknown, missing or of another type."""
        known = {**self.fields, **self.own} if is_own else self.fields
        for name in self.required:
            if name not in payload and not (is_own and self.own.keys() & payload.keys()):
                raise BadInput(
                    f"payload of {kind}: the field {name!r} is missing. {self._listed(known)}"
                )
        for name, value in payload.items():
            check = known.get(name)
            if check is None:
                if self.is_open:
                    continue
                raise BadInput(
                    f"payload of {kind}: unknown field {str(name)[:40]!r}. {self._listed(known)}"
                )
            if expected := check(value):
                raise BadInput(f"payload of {kind}: {name} must be {expected}.")

    def check_stored(self, kind: str, payload: Mapping[str, Any], *, by_api: bool) -> None:
        """Check the payload of a task that is about to run."""
        if by_api and kind in FOR_TRYING:
            raise refused(kind)
        self.check(kind, payload, is_own=True)

    def _listed(self, known: Mapping[str, Check]) -> str:
        return f"Its fields are {', '.join(known) or 'none'}."


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _number(value: Any) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = is_number and abs(value) <= 1e9 and math.isfinite(value) and value >= 0
    return None if fits else "a number of seconds from 0 to 1e9"


def _id(value: Any) -> str | None:
    is_id = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST_ID
    return None if is_id else "an id"


def _count(value: Any) -> str | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return None if is_count else "a whole number"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "a text"


def _name(value: Any) -> str | None:
    fits = value is None or (isinstance(value, str) and len(value) <= MAX_NAME)
    return None if fits else f"a name of at most {MAX_NAME} characters, or null"


def _texts(what: str, most: int, longest: int, least: int = 0) -> Check:
    def check(value: Any) -> str | None:
        is_list = isinstance(value, list | tuple) and least <= len(value) <= most
        fits = is_list and all(
            isinstance(each, str) and len(each) <= longest and "\0" not in each for each in value
        )
        expected = f"a list of {'up to ' if not least else '1 to '}{most:,} {what}"
        return None if fits else f"{expected}, each of at most {longest:,} characters"

    return check


def _object(value: Any) -> str | None:
    return None if isinstance(value, dict) else "an object"


def _objects(value: Any) -> str | None:
    fits = isinstance(value, list | tuple) and all(isinstance(each, dict) for each in value)
    return None if fits else "a list of objects"


def _settings(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "an object"
    parsed(value)  # names the setting that is wrong
    return None


def _or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


_PATTERNS = ("include", "exclude")
_OPTIONS: dict[str, Check] = {
    **dict.fromkeys(_PATTERNS, _or_none(_texts("patterns", _MANY, _MANY))),
    "hidden": _flag,
    "follow_links": _flag,
}


def _options(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "an object"
    for name, each in value.items():
        if name not in _OPTIONS:
            return f"an object with the fields {', '.join(_OPTIONS)}, not {str(name)[:40]!r}"
        if expected := _OPTIONS[name](each):
            return f"an object; its {name} must be {expected}"
    return None


_FILE: dict[str, Check] = {
    "document": _id, "source": _text, "options": _options, "item": _object,
    "digest": _text, "size": _count,
}  # fmt: skip

BUILT_IN: dict[str, Payload] = {
    "ingest": Payload(
        {
            "sources": _texts("paths and URLs", _MANY, _MANY, least=1),
            "corpus": _name,
            "settings": _settings,
            "force": _flag,
            "retry_failed": _flag,
            "options": _options,
        },
        required=("sources",),
        own={
            "uploads": _objects,
            "document": _id,
            "outdated": _flag,
            "sources": _texts("sources", _MANY, _MANY),
        },
    ),
    "ingest.document": Payload({}, own=_FILE),
    "ingest.range": Payload({}, own={"document": _id, "unit": _text}),
    "ingest.swap": Payload({}, own=_FILE),
    "noop": Payload({}, is_open=True),
    "wait": Payload({"seconds": _number}),
}
#: Quire's own tasks: nobody submits them.
INTERNAL = frozenset({"ingest.document", "ingest.range", "ingest.swap"})
#: For trying out: with the command line or Python, on the machine of the operator.
FOR_TRYING = frozenset({"noop", "wait"})


def check_submitted(kind: str, payload: Mapping[str, Any], *, by_api: bool) -> None:
    """Refuse a kind that this caller may not submit, and a payload that its kind does not take."""
    found = BUILT_IN.get(kind)
    if found is None:
        return
    if kind in INTERNAL or (by_api and kind in FOR_TRYING):
        raise refused(kind)
    found.check(kind, payload)
    if by_api and kind == "ingest":
        _check_size(payload)


def _check_size(payload: Mapping[str, Any]) -> None:
    """Refuse more or longer sources and patterns than a job of the API may have."""
    limits: list[tuple[str, Any, Check]] = [
        ("sources", payload["sources"], _texts("paths and URLs", MAX_SOURCES, MAX_SOURCE, least=1))
    ]
    some = _texts("patterns", MAX_PATTERNS, MAX_PATTERN)
    options = payload.get("options") or {}
    if options.get("follow_links"):
        raise Forbidden(
            "payload of ingest: follow_links is for the operator, with `quire ingest "
            "--follow-links`. Nothing was submitted; leave it out."
        )
    limits += [(name, options.get(name) or (), some) for name in _PATTERNS]
    for name, value, check in limits:
        if expected := check(value):
            raise BadInput(f"payload of ingest: {name} must be {expected}.")


def refused(kind: str) -> Forbidden:
    """Return the error for a kind that this caller may not submit."""
    if kind in INTERNAL:
        why = "only Quire itself submits it. Submit `ingest`, or upload a file"
    elif kind in FOR_TRYING:
        why = (
            "it is for trying out Quire, with the command line or Python on the server's machine. "
            "Over the API, submit `ingest` or a kind of a plugin"
        )
    else:
        why = (
            "its plugin does not offer it to users of the API. Submit it with the command line or "
            "Python on the server's machine"
        )
    return Forbidden(f"job kind {kind!r}: {why}. Nothing was submitted.")
