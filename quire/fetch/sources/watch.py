"""Watches a source: a file is taken once it has stayed the same for some seconds.

Being written is not visible from outside, so a file counts as finished when two looks, at least
`stability_seconds` apart, find it unchanged. Time is an argument of the decision.
"""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from quire.fetch.items import Check, Item, Source, seen

STABILITY = 5.0  #: Seconds a file must stay the same before it is taken.
RESCAN = 30.0  #: Seconds between two looks when nothing is about to ripen.


class Sighting(NamedTuple):
    """How a file looked, since when, and whether it was taken so."""

    seen: str
    since: float
    taken: bool


class Look(NamedTuple):
    """What one look at a source decides: what to take now, and what to remember."""

    ripe: list[Item]
    gone: list[str]
    sightings: dict[str, Sighting]
    next_at: float


def look(
    before: dict[str, Sighting],
    items: Iterable[Item],
    now: float,
    stability: float = STABILITY,
    rescan: float = RESCAN,
) -> Look:
    """Decide which files are finished, which are gone, and when to look again."""
    ripe: list[Item] = []
    after: dict[str, Sighting] = {}
    next_at = now + rescan
    for item in items:
        state = seen(item)
        last = before.get(item.uri)
        if last is None or last.seen != state:
            last = Sighting(state, now, taken=False)
        if not last.taken and now - last.since >= stability:
            ripe.append(item)
            last = last._replace(taken=True)
        elif not last.taken:
            next_at = min(next_at, last.since + stability)
        after[item.uri] = last
    return Look(ripe, [uri for uri in before if uri not in after], after, next_at)


def watch(
    source: Source,
    take: Callable[[list[Item], list[str]], None],
    check: Check,
    *,
    stability: float = STABILITY,
    rescan: float = RESCAN,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Hand over finished files and the URIs of those that went, until `check` raises."""
    sightings: dict[str, Sighting] = {}
    while True:
        check()
        items = [item for page in source.pages(None) for item in page.items]
        found = look(sightings, items, clock(), stability, rescan)
        if found.ripe or found.gone:
            take(found.ripe, found.gone)
        sightings = found.sightings
        while (left := found.next_at - clock()) > 0:
            check()
            wait(min(left, 0.5))
