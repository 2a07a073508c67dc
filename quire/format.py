"""How times, counts, sizes and states read for people, in the CLI and the dashboard alike.

Pure functions from values to text: no colours, no markup. Exact values are in the JSON output.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

#: What a state or an outcome means: decides the colour in a terminal and the badge on a page.
TONES = {
    "pending": "wait", "blocked": "wait", "ready": "wait", "queued": "wait", "building": "run",
    "running": "run", "indexing": "run", "draining": "wait", "alive": "good", "active": "good",
    "completed": "good", "done": "good", "success": "good", "live": "good",
    "success with errors": "warn", "completed with errors": "warn", "stopped": "warn",
    "transient": "warn", "returned": "idle",
    "failed": "bad", "lost": "bad", "dead": "bad", "permanent": "bad", "crashed": "bad",
    "died": "bad", "timeout": "bad", "memory": "bad", "stalled": "bad", "quarantined": "bad",
    "cancelled": "idle", "skipped": "idle", "not_indexed": "idle", "replaced": "idle",
}  # fmt: skip
#: Why a task waits, in a few words.
REASONS = {
    "due": "scheduled for later",
    "backoff": "failed, next attempt later",
    "after": "waiting for other tasks",
    "cap": "the owner has reached the limit of running tasks",
    "user_busy": "the owner’s other job goes first",
    "paused": "its kind is paused",
    "stopped": "its job is stopped",
    "no_worker": "no worker can run its kind",
    "lock_held": "another task works on the same document",
}
#: States of a file in its job in which nothing more happens to it.
FINAL_FILE_STATES = ("success", "failed", "cancelled")
BAR_WIDTH = 10
_UNITS = ((31_557_600.0, "years"), (86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_SIZES = ((1 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))
_NONE = "–"
_OFFICE = "application/vnd.openxmlformats-officedocument."
_MEDIA_TYPES = {
    "text/plain": "text",
    "message/rfc822": "mail",
    "application/octet-stream": "unknown",
    "application/x-ole-storage": "old office",
    "application/x-7z-compressed": "7z",
    "application/msword": "doc",
    "application/vnd.ms-excel": "xls",
    "application/vnd.ms-powerpoint": "ppt",
    "application/vnd.ms-outlook": "msg",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/vnd.rar": "rar",
    "application/epub+zip": "epub",
    "image/svg+xml": "svg",
    f"{_OFFICE}wordprocessingml.document": "docx",
    f"{_OFFICE}spreadsheetml.sheet": "xlsx",
    f"{_OFFICE}presentationml.presentation": "pptx",
}
#: First words of an error whose subject is the file.
_PREDICATES = frozenset({"is", "has", "was", "holds", "would", "cannot"})
_REUSED = {"pages": "page", "ocr": "OCR page", "chunks": "chunk", "vectors": "vector"}


def number(value: float | None) -> str:
    """Write `127,191`."""
    return _NONE if value is None else f"{value:,}"


def count(value: int, noun: str) -> str:
    """Write `1 job` or `2,000 jobs`."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def percent(fraction: float) -> str:
    """Write `52 %`."""
    return f"{fraction * 100:.0f} %"


def size(value: float | None) -> str:
    """Write bytes in the largest fitting unit: `1,014 bytes`, `1.5 MB`, `12 GB`."""
    if value is None:
        return _NONE
    for step, unit in _SIZES:
        if value >= step:
            shown = value / step
            return f"{shown:.1f} {unit}" if shown < 10 else f"{shown:,.0f} {unit}"
    return count(int(value), "byte")


def span(seconds: float | None) -> str:
    """Write a duration: `350 ms`, `2.5 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d`."""
    if seconds is None:
        return _NONE
    seconds = max(seconds, 0.0)
    if 0 < seconds < 1:
        return f"{max(round(seconds * 1000), 1)} ms"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for at, (step, unit) in enumerate(_UNITS):
        if whole >= step:
            rest = int(whole % step / _UNITS[at + 1][0]) if at + 1 < len(_UNITS) else 0
            more = f" {rest} {_UNITS[at + 1][1]}" if rest and step < 86_400 else ""
            return f"{int(whole / step):,} {unit}{more}"
    return "0 s"


def rough_span(seconds: float) -> str:
    """Write a duration in one unit: `3 min`."""
    for step, unit in _UNITS:
        if seconds >= step:
            return f"{int(seconds / step):,} {unit}"
    return "0 s"


def epoch(at: str | float | None) -> float | None:
    """Return a time in seconds; text is ISO 8601, as in the JSON output."""
    return datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at


def when(at: str | float | None, now: float | None = None) -> str:
    """Write a time as `3 min ago`, `in 2 h`, `now` or `never`."""
    seconds = epoch(at)
    if seconds is None:
        return "never"
    off = seconds - (time.time() if now is None else now)
    if abs(off) < 2:
        return "now"
    return f"in {rough_span(off)}" if off > 0 else f"{rough_span(-off)} ago"


def age(at: str | float | None, now: float | None = None) -> str:
    """Write how long ago a time was, in one unit: `3 min`."""
    seconds = epoch(at)
    if seconds is None:
        return ""
    return rough_span((time.time() if now is None else now) - seconds)


def clock_time(at: str | float | None) -> str:
    """Write the time of day in UTC."""
    seconds = epoch(at)
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S")


def clean(text: Any) -> str:
    """Make foreign text safe to print: no escape codes, no control characters."""
    plain = str(text).encode(errors="replace").decode()
    return "".join(c if c.isprintable() or c == "\n" else " " for c in plain)


def one_line(text: Any, limit: int = 200) -> str:
    """Put text on one line and truncate it."""
    if not text:
        return ""
    line = " ".join(clean(str(text)[: limit * 4]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def file_error(error: str | None, name: str, limit: int = 200) -> str:
    """Write the error of a file as a sentence without its name, which is shown beside it."""
    rest = (error or "").removeprefix(f"{name}: ")
    if rest == error:
        return one_line(rest, limit)
    subject = "The file " if rest.split(" ", 1)[0] in _PREDICATES else ""
    return one_line(subject + rest if subject else rest[:1].upper() + rest[1:], limit)


def file_detail(file: Mapping[str, Any]) -> str:
    """Write what went wrong with a file: its error, or the pages that could not be read."""
    if file["page_errors"] and not file["error"]:
        return f"{count(file['page_errors'], 'page')} could not be read"
    return file_error(file["error"], file["name"]) or str(file.get("notice") or "")


def multiline(text: Any, limit: int = 4000) -> str:
    """Keep line breaks of foreign text; replace control characters and truncate."""
    shown = str("" if text is None else text)[: limit + 1]
    plain = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in shown)
    return plain if len(plain) <= limit else plain[:limit] + "…"


def short_json(value: Any, limit: int = 400) -> str:
    """Write a value as JSON on one line, truncated."""
    return one_line(json.dumps(value, ensure_ascii=False), limit)


def indented_json(value: Any, limit: int = 8000) -> str:
    """Write a value as indented JSON, truncated."""
    return multiline(json.dumps(value, indent=2, ensure_ascii=False), limit)


def setting(value: Any) -> str:
    """Write the value of a setting so that emptiness and outer spaces are visible."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    if not text:
        return "empty"
    return text if text.strip() == text else f"“{text}”"


def join_names(names: Sequence[str], total: int) -> str:
    """Write `a, b and c`, or `a, b and 3 more` when there are more than those named."""
    if total > len(names):
        return f"{', '.join(names)} and {total - len(names):,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def media_type(name: str | None) -> str:
    """Write a media type as people call it: `pdf`, `docx`, `mail`."""
    plain = (name or "").partition(";")[0].strip().lower()
    return _MEDIA_TYPES.get(plain) or plain.rpartition("/")[2].removeprefix("x-")


#: Suffixes that promise a type; those of text do not.
_DOCUMENTS = ("pdf", "docx", "xlsx", "pptx", "doc", "xls", "odt", "rtf", "epub", "msg")
_PICTURES = ("png", "jpg", "jpeg", "tif", "tiff", "gif", "webp", "bmp")
_PROMISED = frozenset((*_DOCUMENTS, *_PICTURES))
_SUFFIX_TYPES = {"jpg": "jpeg", "tif": "tiff"}
_UNCLEAR = frozenset(("", "unknown", "old office", "ole-encrypted", "zip"))


def misnamed(name: str, found: str | None) -> str | None:
    """Write that a file is not what its name says: `is named .pdf, but is text`."""
    suffix = name.lower().rpartition(".")[2] if "." in name else ""
    shown = media_type(found)
    if suffix not in _PROMISED or shown in (suffix, _SUFFIX_TYPES.get(suffix), *_UNCLEAR):
        return None
    return f"is named .{suffix}, but is {shown}"


def tone(state: str | None) -> str:
    """Return how a state is to be shown: wait, run, good, warn, bad or idle."""
    return TONES.get(state or "", "idle")


def document_state(document: Mapping[str, Any]) -> str:
    """Return the state of a document or of a file of a job; page errors are part of it."""
    has_errors = document["state"] == "success" and document.get("page_errors")
    return "success with errors" if has_errors else str(document["state"])


def job_state(job: Mapping[str, Any]) -> str:
    """Return the state of a job; files that failed are part of it."""
    has_errors = job["state"] == "completed" and job.get("failed_files")
    return "completed with errors" if has_errors else str(job["state"])


def stopped(job: Mapping[str, Any], now: float) -> str:
    """Write who stopped or cancelled a job, when and why: `stopped by ada 2 min ago: too slow`."""
    by = f"by {one_line(job['stopped_by'])} " if job["stopped_by"] else ""
    why = f": {one_line(job['stopped_why']).rstrip('.')}" if job["stopped_why"] else ""
    at = when(job["stopped_at"], now).replace("now", "just now")
    return f"{job['state']} {by}{at}{why}"


def next_attempt(job: Mapping[str, Any], now: float) -> str:
    """Write when a job that only waits tries again: `next attempt in 38 s`; or nothing."""
    at = epoch(job.get("next_attempt_at"))
    if at is None:
        return ""
    return f"next attempt in {rough_span(at - now)}" if at > now + 1 else "next attempt now"


def distinct_names(files: Iterable[Mapping[str, Any]]) -> list[str]:
    """Name files or documents (`name`, `uri`); names that repeat are prefixed by folders."""
    paths = [(each["name"], unquote(each["uri"]).split("/")[:-1]) for each in files]
    by_name: dict[str, list[list[str]]] = defaultdict(list)
    for name, folders in paths:
        by_name[name].append(folders)
    depths = {name: _distinct_depth(folders) for name, folders in by_name.items()}
    return ["/".join([*_last(folders, depths[name]), name]) for name, folders in paths]


def _distinct_depth(paths: Sequence[list[str]]) -> int:
    """Return how many trailing folders make the paths distinct: 0 for one path."""
    depth, most = 0, max(map(len, paths))
    while depth < most and len({tuple(_last(each, depth)) for each in paths}) < len(paths):
        depth += 1
    return depth


def _last(folders: list[str], depth: int) -> list[str]:
    return folders[-depth:] if depth else []


def bar(fraction: float) -> str:
    """Draw `━━━━━───── 52 %`."""
    full = int(fraction * BAR_WIDTH)
    return f"{'━' * full}{'─' * (BAR_WIDTH - full)} {int(fraction * 100):>3} %"


def job_progress(job: Mapping[str, Any]) -> str:
    """Draw the progress of a job; while its files are being listed, no fraction is known."""
    if job["is_listing"]:
        return "listing"
    return bar(job["progress"]) if job["state"] != "pending" or job["progress"] else ""


def job_files(job: Mapping[str, Any]) -> str:
    """Write how many files of a job are done: `12 of 40 files done, 1 failed`."""
    counts = job["files"]
    done = sum(counts.get(state, 0) for state in FINAL_FILE_STATES)
    total = sum(counts.values())
    failed = f", {counts['failed']:,} failed" if counts.get("failed") else ""
    if job["is_listing"]:
        return f"listing: {count(total, 'file')} found, {done:,} done{failed}"
    return f"{done:,} of {count(total, 'file')} done{failed}"


def beyond_files(
    items: Iterable[Mapping[str, Any]], files: Iterable[Mapping[str, Any]]
) -> list[Any]:
    """Return the tasks or attempts of a job that tell more than its files do, shown beside them."""
    told = {each["error"] for each in files if each["error"]}
    return [
        each
        for each in items
        if each.get("state", each.get("outcome")) not in ("done", "skipped")
        and each["error"] not in told
    ]


def job_duration(job: Mapping[str, Any]) -> str:
    """Write how long a job ran, or has been running."""
    start, end = epoch(job["started_at"]), epoch(job["finished_at"])
    return "" if start is None else span((time.time() if end is None else end) - start)


def job_detail(job: Mapping[str, Any], now: float) -> str:
    """Write the most important thing about a job besides its state."""
    if job["stopped_at"]:
        return stopped(job, now)
    if job["state"] == "completed" and job["failed_files"]:
        return job_files(job)
    if job["error"] and job["state"] not in ("completed", "running"):
        return one_line(job["error"])
    start = epoch(job["run_at"])
    if job["state"] == "pending" and start is not None and start > now:
        return f"starts in {span(start - now)}"
    if job["state"] != "running":
        return ""
    return job_files(job) if job["files"] else one_line(job["progress_message"])


def reuse(stats: Mapping[str, Any]) -> str:
    """Write what was reused, and the time that it saved: `3 pages, 18 vectors; saved 2 min`."""
    parts = [count(stats[key], noun) for key, noun in _REUSED.items() if stats.get(key)]
    if whole := stats.get("whole"):
        parts.insert(0, "the whole file" if whole is True else count(whole, "whole file"))
    if not parts:
        return ""
    saved = stats.get("seconds_saved")
    return ", ".join(parts) + (f"; saved about {span(saved)} of work" if saved else "")
