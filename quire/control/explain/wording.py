"""Small phrases that explanations are made of."""

from collections.abc import Sequence
from typing import NamedTuple

from quire.store.reports.waiting import Before

#: How a run ended, in words, by the outcome in its history.
OUTCOMES = {
    "done": "it succeeded",
    "transient": "an error that may pass",
    "permanent": "an error that stays",
    "stopped": "its job was stopped",
    "died": "its worker died or its lease ended",
    "crashed": "its child process crashed",
    "timeout": "it took longer than its time limit",
    "memory": "it used more memory than it may",
    "stalled": "it made no progress for too long",
    "unstarted": "its worker gave it back before it began",
    "returned": "its worker gave it back",
    "outage": "what it needs was away",
}


class Finding(NamedTuple):
    """One explanation: a word for programs, sentences for people, and times."""

    code: str
    text: str
    next: str
    since: float | None = None
    until: float | None = None


def number(count: int) -> str:
    """Write a count with thousands separated."""
    return f"{count:,}"


def count_of(count: int, noun: str) -> str:
    """Write `1 page` or `2,000 pages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def share(fraction: float) -> str:
    """Write a fraction as per cent."""
    return f"{fraction * 100:.0f} %"


def span(seconds: float) -> str:
    """Write a time span in the largest two units that matter."""
    whole = max(round(seconds), 0)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    if whole < 172_800:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} days"


def listed(named: Sequence[str], total: int) -> str:
    """Join names, and say how many more there are."""
    if total > len(named):
        return f"{', '.join(named)} and {number(total - len(named))} more"
    return " and ".join([", ".join(named[:-1]), named[-1]]) if len(named) > 1 else named[0]


def outcome_words(outcome: str, error: str | None) -> str:
    """Say how a run ended, with its error's first line."""
    words = OUTCOMES.get(outcome, outcome)
    first = (error or "").strip().split("\n", 1)[0]
    return f"{words} ({first})" if first and outcome != "died" else words


def after_words(some: Sequence[Before]) -> str:
    """Say what the failure of a predecessor does."""
    one = "it" if len(some) == 1 else "one of them"
    if all(before.on_failure == "run" for before in some):
        return f"It runs even if {one} fails."
    return f"If {one} fails or is cancelled, this is cancelled too."
