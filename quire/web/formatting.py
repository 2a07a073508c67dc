"""How times, counts, sizes and states read on a page. Times are relative; the exact is on hover."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from quire.model import apart
from quire.model.pages import media_word

#: A narrow space that no line breaks at: groups of digits line up and stay together.
THIN = "\u202f"
_UNITS = ((31_557_600.0, "years"), (86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_SIZES = ((1 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))

#: What a state means, beside its name: the tone of its badge and the sign in it.
TONES = {
    "pending": "wait", "blocked": "wait", "ready": "wait", "queued": "wait", "building": "run",
    "running": "run", "indexing": "run", "draining": "wait", "alive": "good", "active": "good",
    "completed": "good", "done": "good", "success": "good", "live": "good",
    "success with errors": "warn", "stopped": "warn", "transient": "warn", "returned": "idle",
    "failed": "bad", "lost": "bad", "dead": "bad", "permanent": "bad", "crashed": "bad",
    "died": "bad", "timeout": "bad", "memory": "bad", "stalled": "bad", "quarantined": "bad",
    "cancelled": "idle", "skipped": "idle", "not_indexed": "idle", "replaced": "idle",
}  # fmt: skip
#: Why a task waits, in a few words.
REASONS = {
    "due": "its time has not come",
    "backoff": "failed, tries again later",
    "after": "what it waits for has not ended",
    "cap": "the owner runs as many tasks as allowed",
    "user_busy": "the owner’s other job goes first",
    "paused": "its kind is paused",
    "stopped": "its job is stopped",
    "no_worker": "no worker knows its kind",
    "lock_held": "another task has the same document",
}


def told_apart(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return files or documents under names that tell them apart."""
    shown = apart.names((each["name"], each["uri"]) for each in items)
    return [{**each, "name": name} for each, name in zip(items, shown, strict=True)]


def number(value: float | None) -> str:
    """Write a count with thin spaces between thousands."""
    if value is None:
        return "–"
    return f"{value:,}".replace(",", THIN)


def counted(value: int, noun: str) -> str:
    """Write `1 page` or `2 000 pages`."""
    return f"{number(value)} {noun}{'' if value == 1 else 's'}"


def size(value: float | None) -> str:
    """Write bytes in the largest unit that fits."""
    if value is None:
        return "–"
    for step, unit in _SIZES:
        if value >= step:
            shown = value / step
            return f"{shown:.1f} {unit}" if shown < 10 else f"{number(round(shown))} {unit}"
    return counted(int(value), "byte")


def span(seconds: float | None) -> str:
    """Write a duration: `350 ms`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds is None:
        return "–"
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
            return f"{number(int(whole / step))} {unit}{more}"
    return "0 s"


def epoch(at: str | float | None) -> float | None:
    """Read a time that is seconds or ISO text."""
    return datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at


def relative(at: float, now: float) -> str:
    """Write a time as `3 min ago` or `in 2 h`."""
    off = at - now
    if abs(off) < 2:
        return "now"
    for step, unit in _UNITS:
        if abs(off) >= step:
            text = f"{number(int(abs(off) / step))} {unit}"
            return f"in {text}" if off > 0 else f"{text} ago"
    return "now"


def when(at: str | float | None, now: float) -> Markup:
    """Mark up a time: relative to read, exact on hover."""
    seconds = epoch(at)
    if seconds is None:
        return Markup('<span class="faint">–</span>')
    try:
        exact = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return Markup("<span>{}</span>").format(seconds)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(timespec="seconds"),
        exact.strftime("%Y-%m-%d %H:%M:%S UTC"),
        relative(seconds, now),
    )


def clock(at: str | float | None) -> str:
    """Write the time of day."""
    seconds = epoch(at)
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S")


def tone(state: str | None) -> str:
    """Return the tone in which a state is shown."""
    return TONES.get(state or "", "idle")


def state_of(document: dict[str, Any]) -> str:
    """Name the state of a document, or of a file of a job: errors of pages are never hidden."""
    spoilt = document["state"] == "success" and document.get("page_errors")
    return "success with errors" if spoilt else str(document["state"])


def plain(text: Any, limit: int = 4000) -> str:
    """Return text of others without control characters, cut at a limit."""
    shown = str("" if text is None else text)[: limit + 1]
    clean = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in shown)
    return clean if len(clean) <= limit else clean[:limit] + "…"


def pretty(value: Any, limit: int = 8000) -> str:
    """Write a value as indented JSON."""
    return plain(json.dumps(value, indent=2, ensure_ascii=False), limit)


def marked(text: str, marks: Any) -> Markup:
    """Mark ranges of a text; every part is escaped by itself."""
    parts, at = [], 0
    for start, stop in marks:
        parts += [escape(text[at:start]), Markup("<mark>"), escape(text[start:stop])]
        parts.append(Markup("</mark>"))
        at = stop
    return Markup("").join([*parts, escape(text[at:])])


def media(name: str | None) -> str:
    """Write a media type as people call it: `pdf`, `docx`, `mail`."""
    return media_word(name)


def setting(text: str) -> str:
    """Write a value of a setting, so that nothing and spaces can be seen."""
    if not text:
        return "empty"
    return text if text.strip() == text else f"“{text}”"


def coded(text: str) -> Markup:
    """Mark up what stands between backticks as code; every part is escaped."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 and at < len(parts) - 1 else escape(part)
        for at, part in enumerate(parts)
    )
