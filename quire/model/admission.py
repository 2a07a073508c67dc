"""The result of a listing: which files are indexed, and which sources could not be listed.

The decision is made before any byte is fetched.
"""

from collections.abc import Sequence
from typing import NamedTuple

from quire.model.states import DOCUMENT_LOCKED, DocumentState

#: Sources that the error of a job names; its result has all of them.
NAMED_SOURCES = 3
#: Seconds after which a locked document without an open task counts as stuck.
QUEUED_SECONDS, INDEXING_SECONDS = 600.0, 2700.0


class Decision(NamedTuple):
    """Index or skip the file, and the reason as a code."""

    should_index: bool
    why: str


class KnownDocument(NamedTuple):
    """A document that a source lists again."""

    id: int
    state: str
    generation: int
    live_generation: int | None
    seen: str | None
    settings: str | None  # of the newest generation, as canonical JSON
    has_open_task: bool
    since: float  # when it was queued, or when indexing started
    overrides: str = "{}"  # its own settings, over those of the corpus

    @property
    def is_locked(self) -> bool:
        """Whether it is queued or being indexed."""
        return self.state in DOCUMENT_LOCKED


def decide(
    known: KnownDocument | None,
    seen: str,
    settings: str,
    *,
    is_forced: bool,
    retry_failed: bool,
    now: float,
) -> Decision:
    """Decide about a file, given the document that has its URI."""
    if known is None:
        return Decision(True, "new")
    if known.is_locked:
        return _decide_locked(known, now)
    if is_forced:
        return Decision(True, "forced")
    is_same = (known.seen, known.settings) == (seen, settings)
    if known.state == DocumentState.FAILED:
        # The same bytes would fail again, on every run.
        should_retry = retry_failed or not is_same
        return Decision(should_retry, "retried" if should_retry else "failed_before")
    if known.state == DocumentState.NOT_INDEXED:
        return Decision(True, "not_indexed")
    if known.seen != seen:
        return Decision(True, "changed")
    return Decision(False, "unchanged") if is_same else Decision(True, "settings")


def _decide_locked(known: KnownDocument, now: float) -> Decision:
    """A document with an open task is left to it, however long it waits."""
    is_queued = known.state == DocumentState.QUEUED
    limit = QUEUED_SECONDS if is_queued else INDEXING_SECONDS
    if not known.has_open_task and now - known.since > limit:
        return Decision(True, "takeover")
    return Decision(False, "waiting" if is_queued else "running")


def reason_text(why: str) -> str:
    """Explain a reason code in a clause."""
    return _REASONS.get(why, why)


_REASONS: dict[str, str] = {
    "new": "it is new",
    "forced": "re-indexing was requested",
    "retried": "the last attempt failed",
    "failed_before": "it failed before and has not changed; --retry-failed tries it again",
    "not_indexed": "it has never been indexed",
    "changed": "the file has changed",
    "settings": "the corpus settings have changed",
    "takeover": "it was stuck: locked, but no task was working on it",
    "waiting": "it is already queued",
    "running": "it is being indexed",
    "unchanged": "nothing has changed since it was indexed",
}


def failed_sources_text(errors: Sequence[str], total: int) -> str:
    """Word how many sources of a job could not be listed, with the first reasons."""
    if total == 1 and errors:
        return errors[0]
    more = f"; and {len(errors) - NAMED_SOURCES:,} more" if len(errors) > NAMED_SOURCES else ""
    first = "; ".join(error.rstrip(".") for error in errors[:NAMED_SOURCES])
    return f"{len(errors):,} of {total:,} sources could not be listed: {first}{more}."
