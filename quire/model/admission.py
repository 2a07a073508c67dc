"""Whether a listed item is indexed now: one decision, made before anything is enqueued."""

from typing import NamedTuple

from quire.model.states import DOCUMENT_LOCKED, DocumentState

#: Seconds after which a locked document without an open task is taken over.
QUEUED_SECONDS, INDEXING_SECONDS = 600.0, 2700.0


class Decision(NamedTuple):
    """Index it or skip it, and the reason as a code."""

    is_taken: bool
    why: str


class KnownDocument(NamedTuple):
    """What is known of a document that a source lists again."""

    id: int
    state: str
    generation: int
    live_generation: int | None
    seen: str | None
    settings: str | None  # of the newest generation, as canonical JSON
    has_open_task: bool
    since: float  # when it was queued, or its work began
    overrides: str = "{}"  # settings of its own, over those of its corpus


def decide(
    known: KnownDocument | None, seen: str, settings: str, *, is_forced: bool, now: float
) -> Decision:
    """Say what becomes of an item, given what is known of the document at its place."""
    if known is None:
        return Decision(True, "new")
    if known.state in DOCUMENT_LOCKED:
        return _locked(known, now)
    if is_forced:
        return Decision(True, "forced")
    if known.state == DocumentState.FAILED:
        return Decision(True, "retried")
    if known.state == DocumentState.NOT_INDEXED:
        return Decision(True, "not_indexed")
    if known.seen != seen:
        return Decision(True, "changed")
    if known.settings != settings:
        return Decision(True, "settings")
    return Decision(False, "unchanged")


def _locked(known: KnownDocument, now: float) -> Decision:
    """A document that merely waits is never taken over, however long it waits."""
    is_queued = known.state == DocumentState.QUEUED
    if known.has_open_task:
        return Decision(False, "waiting" if is_queued else "running")
    patience = QUEUED_SECONDS if is_queued else INDEXING_SECONDS
    if now - known.since > patience:
        return Decision(True, "takeover")
    return Decision(False, "waiting" if is_queued else "running")


def reason_text(why: str) -> str:
    """Explain a reason code in a sentence part."""
    return _WORDS.get(why, why)


_WORDS: dict[str, str] = {
    "new": "it was not known",
    "forced": "it was asked for",
    "retried": "its last try failed",
    "not_indexed": "it had never been indexed",
    "changed": "its source tells of other content",
    "settings": "the settings of its corpus have changed",
    "takeover": "it was locked, and no task was left that worked on it",
    "waiting": "it is queued already",
    "running": "it is being indexed",
    "unchanged": "nothing has changed since it was indexed",
}
