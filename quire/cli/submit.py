"""`quire submit`: submits one job or many, and can wait for them."""

import math
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime
from json import loads as json_loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire import format
from quire.cli import console, options, session
from quire.errors import BadInput
from quire.model.contracts import ATTEMPTS
from quire.model.records import Submission

if TYPE_CHECKING:
    from quire.cli.session import Backend

#: Jobs of `--count` in one transaction.
BATCH = 10_000
MOST = 1_000_000
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RELATIVE = r"\+(\d{1,9}(?:\.\d{1,9})?)([smhd])"
_NOTHING = "Nothing was submitted."
_FIELDS = [field.name for field in fields(Submission)]
#: Ids printed one by one; a longer list is cut.
FEW = 5

Kind = Annotated[str | None, options.argument("KIND", "Job kind, as in @job(KIND).")]
Payload = Annotated[
    str | None,
    options.option(
        "JSON", "Payload as a JSON object. @FILE reads it from a file, - from standard input."
    ),
]
Arguments = Annotated[
    list[str] | None,
    options.option(
        "KEY=VALUE",
        "One key of the payload. The value is parsed as JSON, or else taken as text. Repeatable.",
    ),
]
Priority = Annotated[int, options.option("N", "1 (highest) to 10 (lowest).")]
RunAt = Annotated[
    str | None, options.option("TIME", "Earliest start: 2026-01-31T18:00:00Z, or +10m, +2h, +1d.")
]
After = Annotated[
    list[str] | None, options.option("JOB", "Run after this job has completed. Repeatable.")
]
AfterFailure = Annotated[
    str,
    options.option(
        "WHAT", "If a job named by --after fails: `cancel` this one, or `run` it anyway."
    ),
]
Platform = Annotated[str | None, options.option("NAME", "Platform label of the job.")]
Account = Annotated[str | None, options.option("NAME", "Account label of the job.")]
User = Annotated[str | None, options.option("NAME", "Submit as this user instead of QUIRE_USER.")]
Key = Annotated[
    str | None, options.option("KEY", "Idempotency key: the same key submits the jobs only once.")
]
Count = Annotated[int, options.option("N", "Submit the job N times.")]
IndexAs = Annotated[str | None, options.option("KEY", "With --count: payload key set to 0, 1, 2 …")]
File = Annotated[
    str | None,
    options.option(
        "FILE",
        "Submit one job per line, all or none. A line is a JSON object with kind, "
        "payload, priority, run_at, after, after_failure, platform, account, ref, cost and "
        "max_attempts. `after` lists job ids, or refs of other lines. - reads standard input.",
    ),
]
Wait = Annotated[
    bool, options.flag("Wait until they finish. Exits with 1 unless all completed.", "--wait")
]


def submit(
    kind: Kind = None,
    payload: Payload = None,
    arg: Arguments = None,
    priority: Priority = options.DEFAULT_PRIORITY,
    run_at: RunAt = None,
    after: After = None,
    after_failure: AfterFailure = "cancel",
    platform: Platform = None,
    account: Account = None,
    user: User = None,
    key: Key = None,
    count: Count = 1,
    index_as: IndexAs = None,
    file: File = None,
    wait: Wait = False,
    plugin: options.Plugins = None,
    json: options.Json = False,
) -> None:
    """Submit one job, or many.

    A job starts as soon as it is due and a worker is free.
    """
    if file is not None:
        if any((payload, arg, run_at, after, platform, account, index_as, count > 1)):
            raise BadInput(
                "--file: the lines describe each job. Only KIND, --key, --user, --plugin, --wait "
                f"and --json can be combined with it. {_NOTHING}"
            )
        made = _from_file(file, kind)
    elif kind is None:
        raise BadInput("submit: no job kind. Name one, as in `quire submit noop`, or use --file.")
    else:
        one = Submission(
            kind,
            _payload(payload, arg or ()),
            priority,
            None if run_at is None else _moment(run_at),
            [options.job_id(each) for each in after or ()],
            after_failure,
            platform,
            account,
        )
        made = _copies(one, count, index_as)
    with session.connect(plugin, create=True, user=user) as app:
        last = app.last_job_id()
        # Lines of a file may refer to each other, so they go into one transaction.
        ids = _submit_in_batches(app, made, key, len(made) if file is not None else BATCH)
        if ids[0] <= last and not json:
            console.say(
                "This key was already used for the same request. No new jobs were submitted."
            )
        code = _report(app, ids, is_one=file is None and count == 1, wait=wait, json=json)
    raise typer.Exit(code)


def _copies(one: Submission, count: int, index_as: str | None) -> list[Submission]:
    if not 1 <= count <= MOST:
        raise BadInput(f"--count: {count} is not between 1 and {MOST:,}. {_NOTHING}")
    if not index_as:
        return [one] * count
    return [replace(one, payload={**one.payload, index_as: index}) for index in range(count)]


def _submit_in_batches(
    app: "Backend", made: Sequence[Submission], key: str | None, size: int
) -> list[int]:
    ids: list[int] = []
    for start in range(0, len(made), size):
        part_key = f"{key}#{start}" if key and start else key
        ids += app.submit_many(made[start : start + size], part_key)
    return ids


def _report(app: "Backend", ids: Sequence[int], *, is_one: bool, wait: bool, json: bool) -> int:
    """Print the ids, wait if asked to, and return the exit code."""
    from quire.cli import waiting

    answer: dict[str, Any] = {"id": ids[0]} if is_one else {"ids": list(ids)}
    if not json:
        _say(ids, wait)
    elif not wait:
        console.as_json(answer)
    if not wait:
        return 0
    ended = waiting.until_over(app, ids, quiet=json)
    if json and is_one:
        job = app.job(ids[0])
        console.as_json(answer | {name: job[name] for name in ("state", "result", "error")})
    elif json:
        console.as_json({**answer, "states": ended})
    else:
        _say_ending(app, ids, ended)
    return waiting.exit_code(ended)


def _say(ids: Sequence[int], wait: bool) -> None:
    if len(ids) == 1:
        console.say(f"job {ids[0]} submitted.")
        follow = f"quire job show {ids[0]} --watch"
    else:
        is_row = list(ids) == list(range(ids[0], ids[0] + len(ids)))
        named = f"{ids[0]} to {ids[-1]}" if is_row else ", ".join(map(str, ids[:FEW]))
        more = "" if is_row or len(ids) <= FEW else " …"
        console.say(f"{format.count(len(ids), 'job')} submitted: {named}{more}.")
        follow = "quire jobs --watch"
    if not wait:
        console.say(f"Follow it with: {follow}")


def _say_ending(app: "Backend", ids: Sequence[int], ended: dict[str, int]) -> None:
    from quire.cli import waiting

    if len(ids) > 1:
        console.say(f"{waiting.outcome(ended)}.")
        return
    job = app.job(ids[0])
    took = format.job_duration(job)
    console.say(f"job {ids[0]} {job['state']}{f' after {took}' if took else ''}.")
    if job["result"] is not None:
        console.say(f"result: {format.short_json(job['result'])}")
    if job["error"]:
        console.say(f"error: {format.one_line(job['error'], 400)}")


def _payload(text: str | None, arguments: Sequence[str]) -> dict[str, Any]:
    """Read the payload from JSON, `@file` or `-`; `--arg` values override its keys."""
    found = {} if text is None else _object("payload", _text("payload", text))
    for each in arguments:
        key, equals, value = each.partition("=")
        if not key or not equals:
            raise BadInput(f"--arg {each!r}: expected key=value. {_NOTHING}")
        found[key] = _value(value)
    return found


def _moment(text: str) -> float:
    """Parse a time: ISO 8601, or `+10m` from now."""
    if found := re.fullmatch(_RELATIVE, text):
        return time.time() + float(found[1]) * _SECONDS[found[2]]
    try:
        return datetime.fromisoformat(text).timestamp()  # without a zone: local time
    except (ValueError, OverflowError, OSError) as error:
        raise BadInput(
            f"time {text!r}: expected ISO 8601 as in 2026-01-31T18:00:00Z, or +90s, +10m, +2h, +1d "
            f"from now. {_NOTHING}"
        ) from error


def _from_file(name: str, kind: str | None) -> list[Submission]:
    """Read one job from each line of a file, or of standard input (`-`)."""
    text = _text("--file", "-" if name == "-" else f"@{name}")
    lines = {f"line {n}": line for n, line in enumerate(text.splitlines(), 1) if line.strip()}
    if not lines:
        raise BadInput(f"--file {name}: the file is empty. {_NOTHING}")
    return [_submission(where, _object(where, line), kind) for where, line in lines.items()]


def _submission(where: str, found: dict[str, Any], kind: str | None) -> Submission:
    from quire.control import submission_checks

    given = {"kind": kind} | {name: value for name, value in found.items() if value is not None}
    if old := sorted({"retries", "max_retries"} & set(given)):
        raise BadInput(f"{where}: {ATTEMPTS.format(old=old[0])} {_NOTHING}")
    if unknown := sorted(set(given) - set(_FIELDS)):
        raise BadInput(
            f"{where}: unknown field {unknown[0]!r}. Known: {', '.join(_FIELDS)}. {_NOTHING}"
        )
    if not isinstance(given["kind"], str):
        raise BadInput(
            f'{where}: no job kind. Add "kind", or name a KIND for all lines. {_NOTHING}'
        )
    if isinstance(given.get("run_at"), str):
        given["run_at"] = _moment(given["run_at"])
    made = Submission(**given)
    try:
        if not isinstance(made.payload, dict):
            raise BadInput("payload: expected a JSON object.")
        submission_checks.one(made)
    except BadInput as error:
        raise BadInput(f"{where}: {error} {_NOTHING}") from error
    return made


_NOT_OBJECTS: dict[type, str] = {
    str: "a string", list: "a list", int: "a whole number", float: "a number",
    bool: "true or false", type(None): "null",
}  # fmt: skip


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


def _object(what: str, text: str) -> dict[str, Any]:
    try:
        found = json_loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{what}: not JSON ({error}). {_NOTHING}") from error
    if not isinstance(found, dict):
        got = _NOT_OBJECTS[type(found)]
        raise BadInput(f"{what}: expected a JSON object, got {got}. {_NOTHING}")
    return found


def _value(text: str) -> Any:
    """Parse as JSON; anything else is a string."""
    try:
        found = json_loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    # 1e999 is valid JSON, but infinity cannot be stored.
    return text if isinstance(found, float) and not math.isfinite(found) else found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
