"""Reads what is to be submitted: payloads, arguments, times, and files with a job on each line."""

import json
import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from quire.errors import BadInput
from quire.model.contracts import ATTEMPTS
from quire.model.records import Submission

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RELATIVE = re.compile(r"\+(\d{1,9}(?:\.\d{1,9})?)([smhd])")
_NOTHING = "Nothing was submitted."
#: Fields of a line, with the types that each may have.
_TYPES: dict[str, tuple[type, ...]] = {
    "kind": (str,), "payload": (dict,), "priority": (int,), "run_at": (str, int, float),
    "after": (list,), "after_failure": (str,), "platform": (str,), "account": (str,),
    "ref": (str,), "cost": (int, float), "max_attempts": (int,),
}  # fmt: skip


def payload(text: str | None, arguments: Sequence[str]) -> dict[str, Any]:
    """Read the payload from JSON, `@file` or `-`, and put the arguments on top."""
    found = {} if text is None else _json("payload", _text("payload", text))
    if not isinstance(found, dict):
        raise BadInput(f"payload: expected a JSON object, got {_name(found)}. {_NOTHING}")
    for each in arguments:
        key, equals, value = each.partition("=")
        if not key or not equals:
            raise BadInput(f"--arg {each!r}: expected key=value. {_NOTHING}")
        found[key] = _value(value)
    return found


def moment(text: str) -> float:
    """Read a time: ISO 8601, or `+10m` from now."""
    if text.startswith("+"):
        match = _RELATIVE.fullmatch(text)
        if match is None:
            raise BadInput(_not_a_time(text))
        return time.time() + float(match[1]) * _SECONDS[match[2]]
    try:
        at = datetime.fromisoformat(text)
        # A time without a zone is what the clock on the wall says.
        return (at if at.tzinfo else at.astimezone()).astimezone(UTC).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise BadInput(_not_a_time(text)) from error


def from_file(name: str, kind: str | None) -> list[Submission]:
    """Read one job from each line of a file, or of standard input for `-`."""
    text = _text("--file", "-" if name == "-" else f"@{name}")
    found = list(_lines(text.splitlines(), kind))
    if not found:
        raise BadInput(f"--file {name}: there is no line in it. {_NOTHING}")
    return found


def _lines(lines: Sequence[str], kind: str | None) -> Iterator[Submission]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"line {number}"
        found = _json(where, line)
        if not isinstance(found, dict):
            raise BadInput(f"{where}: expected a JSON object, got {_name(found)}. {_NOTHING}")
        yield _wish(where, found, kind)


def _wish(where: str, found: dict[str, Any], kind: str | None) -> Submission:
    given = {name: value for name, value in found.items() if value is not None}
    if old := sorted({"retries", "max_retries"} & set(given)):
        raise BadInput(f"{where}: {ATTEMPTS.format(old=old[0])} {_NOTHING}")
    if unknown := sorted(set(given) - set(_TYPES)):
        raise BadInput(
            f"{where}: unknown field {unknown[0]!r}. Known: {', '.join(_TYPES)}. {_NOTHING}"
        )
    _check_types(where, given)
    if kind is not None:
        given.setdefault("kind", kind)
    if "kind" not in given:
        raise BadInput(f'{where}: no kind. Add "kind", or name one for all lines. {_NOTHING}')
    if isinstance(given.get("run_at"), str):
        given["run_at"] = moment(given["run_at"])
    return Submission(**given)


def _check_types(where: str, given: dict[str, Any]) -> None:
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, _TYPES[name]):
            wanted = " or ".join(_WORDS[each] for each in _TYPES[name])
            raise BadInput(f"{where}: {name} must be {wanted}, not {_name(value)}. {_NOTHING}")
    for each in given.get("after", ()):
        if isinstance(each, bool) or not isinstance(each, int | str):
            raise BadInput(f"{where}: after lists job ids and refs, not {_name(each)}. {_NOTHING}")


_WORDS: dict[type, str] = {
    str: "a text", dict: "an object", list: "a list", int: "a whole number", float: "a number",
    bool: "true or false", type(None): "null",
}  # fmt: skip


def _name(value: object) -> str:
    return _WORDS[type(value)]


def _text(what: str, given: str) -> str:
    try:
        if given == "-":
            return sys.stdin.read()
        if given.startswith("@"):
            return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadInput(f"{what} {given.lstrip('@')}: {reason}. {_NOTHING}") from error
    return given


def _json(what: str, text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{what}: not JSON ({error}). {_NOTHING}") from error


def _value(text: str) -> Any:
    """Read JSON where it is JSON, else take the text itself."""
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    # 1e999 is JSON, but no number that could be stored.
    return text if isinstance(found, float) and not math.isfinite(found) else found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _not_a_time(text: str) -> str:
    return (
        f"time {text!r}: expected ISO 8601 as in 2026-01-31T18:00:00Z, or +90s, +10m, +2h, +1d "
        f"from now. {_NOTHING}"
    )
