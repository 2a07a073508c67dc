"""`quire submit`: makes jobs, one or many, and on request waits for them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli import console, formatting, options
from quire.errors import BadInput
from quire.model.records import DEFAULT_PRIORITY, Submission

if TYPE_CHECKING:
    from quire.cli.backend import Reach

#: Jobs of `--count` made in one transaction.
BATCH = 10_000
MOST = 1_000_000
#: Ids that are printed one by one; more are printed as first and last.
FEW = 5

Kind = Annotated[
    str | None, typer.Argument(metavar="KIND", help="Kind of the job, as in @job(KIND).")
]
Payload = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="Payload, a JSON object; @FILE reads a file, - stdin."),
]
Arguments = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="One key of the payload; the value is read as JSON, else as text. May be repeated.",
    ),
]
Priority = Annotated[int, typer.Option(metavar="N", help="1 (first) to 10 (last).")]
RunAt = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Not before: 2026-01-31T18:00:00Z, or +10m, +2h, +1d."),
]
After = Annotated[
    list[str] | None,
    typer.Option(metavar="JOB", help="Run after this job has completed. May be repeated."),
]
AfterFailure = Annotated[
    str,
    typer.Option(metavar="WHAT", help="If a job of --after fails: cancel this one, or run it."),
]
Platform = Annotated[str | None, typer.Option(metavar="NAME", help="Platform that the job is for.")]
Account = Annotated[str | None, typer.Option(metavar="NAME", help="Account that the job is for.")]
User = Annotated[
    str | None, typer.Option(metavar="NAME", help="Submit for this user instead of QUIRE_USER.")
]
Key = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="Idempotency key: the same key makes the jobs only once."),
]
Count = Annotated[int, typer.Option(metavar="N", help="Submit it N times.")]
IndexAs = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="With --count: payload key that gets 0, 1, 2 …"),
]
File = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Submit one job for each line, all or none. A line is a JSON object with kind, "
        "payload, priority, run_at, after, after_failure, platform, account, ref, cost, "
        "max_attempts; `after` names ids, or refs of other lines. - is stdin.",
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait for the end; exit with 1 unless all completed.")
]


def submit(
    kind: Kind = None,
    payload: Payload = None,
    arg: Arguments = None,
    priority: Priority = DEFAULT_PRIORITY,
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
    """Submit a job, or many.

    Each runs as soon as a worker is free and its time has come.
    """
    from quire.cli import session, submission_input

    if file is not None:
        _check_file_alone(payload, arg, run_at, after, platform, account, index_as, count > 1)
        made = submission_input.from_file(file, kind)
    else:
        one = Submission(
            _given(kind),
            submission_input.payload(payload, arg or ()),
            priority,
            None if run_at is None else submission_input.moment(run_at),
            [options.job_id(each) for each in after or ()],
            after_failure,
            platform,
            account,
        )
        made = list(_repeated(one, count, index_as))
    with session.reaching(plugin, create=True, user=user) as app:
        last = app.last_job_id()
        # Lines of a file may name each other, so that they cannot be made in several batches.
        ids = _stored(app, made, key, batch=len(made) if file is not None else BATCH)
        if ids[0] <= last and not json:
            console.say("This key was used before for the same request: nothing was made again.")
        code = _report(app, ids, is_one=file is None and count == 1, wait=wait, json=json)
    raise typer.Exit(code)


def _check_file_alone(*others: Any) -> None:
    if any(others):
        raise BadInput(
            "--file: the lines say what each job is; of the other options only KIND, --key, "
            "--user, --plugin, --wait and --json go with it. Nothing was submitted."
        )


def _given(kind: str | None) -> str:
    if kind is None:
        raise BadInput("submit: which kind? Name one, as in `quire submit noop`, or use --file.")
    return kind


def _repeated(one: Submission, count: int, index_as: str | None) -> Iterator[Submission]:
    if not 1 <= count <= MOST:
        raise BadInput(f"--count: {count} is not between 1 and {MOST:,}. Nothing was submitted.")
    for index in range(count):
        yield replace(one, payload={**one.payload, index_as: index}) if index_as else one


def _stored(app: "Reach", made: Sequence[Submission], key: str | None, *, batch: int) -> list[int]:
    ids: list[int] = []
    for start in range(0, len(made), batch):
        part_key = key if key is None or start == 0 else f"{key}#{start}"
        ids += app.submit(made[start : start + batch], part_key)
    return ids


def _report(app: "Reach", ids: Sequence[int], *, is_one: bool, wait: bool, json: bool) -> int:
    """Say what was made, wait if asked to, and return the exit code."""
    from quire.cli import waiting

    answer: dict[str, Any] = {"id": ids[0]} if is_one else {"ids": list(ids)}
    if not json:
        _say(ids, wait)
    elif not wait:
        console.as_json(answer)
    if not wait:
        return 0
    ended = waiting.until_over(app, ids, quiet=json)
    if json:
        console.as_json({**answer, **_ending(app, ids, ended, is_one)})
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
        console.say(f"{formatting.count(len(ids), 'job')} submitted: {named}{more}.")
        follow = "quire jobs --watch"
    if not wait:
        console.say(f"Follow with: {follow}")


def _ending(
    app: "Reach", ids: Sequence[int], ended: dict[str, int], is_one: bool
) -> dict[str, Any]:
    if not is_one:
        return {"states": ended}
    job = app.job(ids[0])
    return {name: job[name] for name in ("state", "result", "error")}


def _say_ending(app: "Reach", ids: Sequence[int], ended: dict[str, int]) -> None:
    from quire.cli import waiting

    if len(ids) > 1:
        console.say(f"{waiting.outcome(ended)}.")
        return
    job = app.job(ids[0])
    took = formatting.took(job)
    console.say(f"job {ids[0]} {job['state']}{f' after {took}' if took else ''}.")
    if job["result"] is not None:
        console.say(f"result: {formatting.short_json(job['result'])}")
    if job["error"]:
        console.say(f"error: {formatting.one_line(job['error'], 400)}")
