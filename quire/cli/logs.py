"""`quire logs`: the events of a job, line by line."""

import sys
import time
from typing import Annotated, Any

from quire import format
from quire.app import App
from quire.cli import console, options, session, waiting
from quire.clock import iso
from quire.control import queries
from quire.errors import BadInput

MOST = 3000
#: Events read again when following: on PostgreSQL a smaller id may be committed later.
OVERLAP = 500
POLL_SECONDS = 0.2
_VERBS = {
    "resume": "resumed", "retry": "retried", "task.retry": "failed, will retry",
    "task.fail": "failed", "task.return": "requeued", "task.lose": "lost", "task.died": "died",
    "document.ready": "indexed",
}  # fmt: skip
_COUNTS = ("pages", "chunks")
_OWN = ("id", "at", "job_id", "task_id", "name")

Follow = Annotated[bool, options.flag("Follow until the job finishes.", "--follow", "-f")]
Limit = Annotated[int, options.option("N", f"Only the last N events, at most {MOST:,}.")]


def logs(
    job: options.JobId, follow: Follow = False, limit: Limit = MOST, json: options.Json = False
) -> None:
    """Print the events of a job, oldest first.

    With --json, the output is one object; with --json and -f, one object per line.
    """
    if not 1 <= limit <= MOST:
        raise BadInput(f"--limit: {limit} is not between 1 and {MOST:,}.")
    with session.open_app() as opened:
        one = queries.job(opened.caller, job)
        if follow:
            _follow(opened, job, limit, json)
            return
        happened = queries.log_tail(opened.caller, job, limit=limit)
    if json:
        console.as_json({"items": [_shape(event) for event in happened], "next": None})
        return
    for event in happened:
        console.say(_line(event))
    if not happened:
        submitted = format.when(one["created_at"])
        console.say(f"No events yet: job {job} is {one['state']}, submitted {submitted}.")


def _follow(opened: App, job_id: int, limit: int, json: bool) -> None:
    seen: list[int] = []
    floor = 0
    while True:
        # Read before the events, so that they include everything up to the end.
        over = waiting.is_over(queries.job(opened.caller, job_id))
        recent = seen[-OVERLAP:]
        after = max(floor, min(recent)) if len(recent) == OVERLAP else floor
        most = MOST if seen else limit
        fresh = queries.log_tail(opened.caller, job_id, after_id=after, limit=most)
        if not seen and len(fresh) == limit:
            floor = fresh[0]["id"] - 1
        for event in fresh:
            if event["id"] not in recent:
                seen.append(event["id"])
                if json:
                    console.as_json(_shape(event), on_one_line=True)
                else:
                    console.say(_line(event))
        sys.stdout.flush()
        if over:
            return
        time.sleep(POLL_SECONDS)


def _shape(event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "at": iso(event["at"])}


def _line(event: dict[str, Any]) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["at"]))
    more = {name: value for name, value in event.items() if name not in _OWN and value}
    task = f"  task {event['task_id']}" if event["task_id"] else ""
    if event["name"] == "progress":
        text = format.one_line(more.get("message"), 400)
        part = f"{int(more['fraction'] * 100):>3} %  " if "fraction" in more else ""
        return f"{at}{task}  {part}{text}".rstrip()
    name = event["name"].removeprefix("job.")
    if name in _VERBS and more.get("outcome") == _VERBS[name]:
        del more["outcome"]
    said = [format.one_line(more.pop(key), 1000) for key in ("error", "why") if key in more]
    said += [_fact(key, value) for key, value in more.items()]
    verb = "" if name in more else _VERBS.get(name, name)
    return f"{at}{task}  {': '.join(part for part in (verb, '; '.join(said)) if part)}"


def _fact(name: str, value: Any) -> str:
    if name == "again_in":
        return f"next attempt in {format.span(value)}"
    if name in _COUNTS:
        return format.count(value, name.removesuffix("s"))
    return f"{name.removesuffix('_id')} {format.one_line(value, 1000)}"
