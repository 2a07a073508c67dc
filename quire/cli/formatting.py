"""How times, counts and states read. Times are relative here; the exact ones are in `--json`."""

import json
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from quire.model import apart
from quire.model.pages import media_word

#: Colours of the states of jobs, tasks and documents, as rich names them.
COLOURS = {
    "pending": "yellow", "blocked": "yellow", "ready": "yellow", "queued": "yellow",
    "running": "cyan", "indexing": "cyan",
    "completed": "green", "done": "green", "success": "green", "success with errors": "yellow",
    "failed": "red", "lost": "red",
    "stopped": "magenta", "cancelled": "bright_black", "skipped": "bright_black",
    "not_indexed": "bright_black",
}  # fmt: skip
#: States of a file in which nothing more of it will run by itself.
OVER = ("success", "failed", "cancelled")
_UNITS = ((31_557_600.0, "years"), (86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
BAR = 10


def count(number: int, noun: str) -> str:
    """Write `1 job` or `2,000 jobs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(seconds: float) -> str:
    """Write a duration in its largest fitting unit: `350 ms`, `12 s`, `3 min`, `2 d`."""
    seconds = max(seconds, 0.0)
    if 0 < seconds < 1:
        return f"{max(round(seconds * 1000), 1)} ms"
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds / size):,} {unit}"
    return "0 s"


def epoch(iso: str | None) -> float | None:
    """Read a time of the JSON output."""
    return None if iso is None else datetime.fromisoformat(iso).timestamp()


def when(iso: str | None, now: float | None = None) -> str:
    """Write a time as `3 min ago` or `in 2 h`."""
    at = epoch(iso)
    if at is None:
        return "never"
    off = at - (time.time() if now is None else now)
    if abs(off) < 1:
        return "now"
    return f"in {span(off)}" if off > 0 else f"{span(-off)} ago"


def age(iso: str | None, now: float | None = None) -> str:
    """Write how long ago a time was, without the `ago`."""
    at = epoch(iso)
    return "" if at is None else span((time.time() if now is None else now) - at)


def clean(text: Any) -> str:
    """Make text of others safe to print: no escape codes, no control characters."""
    plain = str(text).encode(errors="replace").decode()
    return "".join(c if c.isprintable() or c == "\n" else " " for c in plain)


def one_line(text: Any, limit: int = 200) -> str:
    """Put text on one line and cut it."""
    if not text:
        return ""
    line = " ".join(clean(str(text)[: limit * 4]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def short_json(value: Any, limit: int = 400) -> str:
    """Write a value as JSON on one line, cut."""
    return one_line(json.dumps(value, ensure_ascii=False), limit)


def progress(job: dict[str, Any]) -> str:
    """Draw how far a job is; while its list of files grows, any fraction would be false."""
    if job["is_listing"]:
        return "listing"
    return bar(job["progress"]) if job["state"] != "pending" or job["progress"] else ""


def bar(fraction: float) -> str:
    """Draw how far something is: `━━━━━───── 52 %`."""
    full = int(fraction * BAR)
    return f"{'━' * full}{'─' * (BAR - full)} {int(fraction * 100):>3} %"


def size(number: int) -> str:
    """Write bytes as `12 MB`."""
    if number < 1024:
        return count(number, "byte")
    return f"{number / 1_048_576:,.0f} MB" if number >= 1_048_576 else f"{number / 1024:,.0f} kB"


def media_type(name: str | None) -> str:
    """Write a media type as people call it: `pdf`, `docx`, `mail`."""
    return one_line(media_word(name), 20)


def state_of(document: dict[str, Any]) -> str:
    """Name the state of a document, or of a file of a job: errors of pages are never hidden."""
    spoilt = document["state"] == "success" and document["page_errors"]
    return "success with errors" if spoilt else str(document["state"])


def told_apart(items: Sequence[dict[str, Any]]) -> list[str]:
    """Name files or documents; where names repeat, with what tells their places apart."""
    return apart.names((each["name"], each["uri"]) for each in items)


def files(job: dict[str, Any]) -> str:
    """Write how far the files of a job are: `12 of 40 files done, 1 failed`."""
    counts = job["files"]
    done, total = sum(counts.get(state, 0) for state in OVER), sum(counts.values())
    bad = f", {counts['failed']:,} failed" if counts.get("failed") else ""
    if job["is_listing"]:
        return f"listing: {count(total, 'file')} found, {done:,} done{bad}"
    return f"{done:,} of {count(total, 'file')} done{bad}"


def took(job: dict[str, Any]) -> str:
    """Write how long a job ran, or has been running."""
    start, end = epoch(job["started_at"]), epoch(job["finished_at"])
    return "" if start is None else span((time.time() if end is None else end) - start)


def detail(job: dict[str, Any], now: float) -> str:
    """Write the one thing to know about a job beside its state."""
    if job["error"] and job["state"] not in ("completed", "running"):
        return one_line(job["error"])
    start = epoch(job["run_at"])
    if job["state"] == "pending" and start is not None and start > now:
        return f"starts in {span(start - now)}"
    if job["state"] != "running":
        return ""
    return files(job) if job["files"] else one_line(job["progress_message"])
