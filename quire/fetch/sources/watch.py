"""Watches a source: a file is ingested once it has not changed for some seconds.

Whether a file is still being written cannot be observed, so it counts as complete when two scans,
at least `stability` seconds apart, find it unchanged.
"""

from collections.abc import Iterable
from typing import NamedTuple

from quire.fetch.items import Item, fingerprint

STABILITY_SECONDS = 5.0  #: How long a file must stay unchanged.
RESCAN_SECONDS = 30.0  #: Time between two scans when no file is waiting to become stable.


class Observation(NamedTuple):
    """A file's fingerprint, since when it is the same, and whether it was handed over."""

    fingerprint: str
    since: float
    taken: bool


class Changes(NamedTuple):
    """The result of one scan: files to ingest now, removed files, and the next scan's input."""

    stable: list[Item]
    gone: list[str]
    observations: dict[str, Observation]
    next_at: float


def find_stable(
    before: dict[str, Observation],
    items: Iterable[Item],
    now: float,
    stability: float = STABILITY_SECONDS,
    rescan: float = RESCAN_SECONDS,
) -> Changes:
    """Decide which files are complete, which are gone, and when to scan again."""
    stable: list[Item] = []
    after: dict[str, Observation] = {}
    next_at = now + rescan
    for item in items:
        state = fingerprint(item)
        last = before.get(item.uri)
        if last is None or last.fingerprint != state:
            last = Observation(state, now, taken=False)
        if not last.taken and now - last.since >= stability:
            stable.append(item)
            last = last._replace(taken=True)
        elif not last.taken:
            next_at = min(next_at, last.since + stability)
        after[item.uri] = last
    return Changes(stable, [uri for uri in before if uri not in after], after, next_at)
