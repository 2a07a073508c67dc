"""How long a tenant waits while another one does its worst; prints the figures of limits.md."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import columns
from tests.attacker import attacking
from tests.integration.processes import Site, pause
from tests.neighbours import ASKED, Neighbours, neighbours
from tests.unit.parse.test_hostile_files import FILES

#: Seconds of each half, and between two rounds of the victim.
CALM, LOUD, PAUSE = 10.0, 30.0, 0.2
#: How often the median of calm: without turns it was thirty times. Of the 95th percentile one run
#: tells little. And the seconds until a child takes up an upload.
MOST, START = 8.0, 2.0


@pytest.fixture(params=columns.DATABASES)
def place(request: pytest.FixtureRequest, home: Path) -> Iterator[Site]:
    """A home without a broker, which polls every five seconds where this one is woken."""
    yield from columns.site_in(request, home)


def measured(both: Neighbours, seconds: float) -> dict[str, list[float]]:
    """The seconds of what the victim asks for, sorted."""
    took: defaultdict[str, list[float]] = defaultdict(list)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name in ASKED:
            took[name].append(both.ask(name))
        took["read"].append(both.seconds_to_read())
        pause(PAUSE)
    return {name: sorted(each) for name, each in took.items()}


def p(share: float, took: list[float]) -> float:
    return took[min(int(len(took) * share), len(took) - 1)]


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_tenant_that_does_its_worst_delays_another_one_within_limits(place: Site):
    with neighbours(place, documents=60) as both:
        measured(both, 2.0)
        calm = measured(both, CALM)
        with attacking(both.url, both.book, "i.burns", both.tokens, niceness=19) as end:
            pause(2.0)
            loud = measured(both, LOUD)
            print("attacker:", dict(end()))
        for name in loud:
            of = [f"{p(s, x[name]) * 1000:.0f}" for x in (calm, loud) for s in (0.5, 0.95)]
            print(f"{name}: calm p50 {of[0]} p95 {of[1]} ms, attacked p50 {of[2]} p95 {of[3]} ms")
        place.open_gate()
        assert p(0.95, loud["read"]) < START
        for name in ASKED:
            assert p(0.5, loud[name]) < MOST * p(0.5, calm[name]), name


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_hostile_files_of_a_tenant_delay_another_one_by_less_than_two_seconds(place: Site):
    with neighbours(place, documents=1) as both:
        for _ in range(3):
            for name, (make, _) in FILES.items():
                both.upload(both.other, name, make())
        took = measured(both, LOUD)["read"]
        print(f"upload to search: p50 {p(0.5, took):.2f} s, longest {took[-1]:.2f} s")
        assert took[-1] < START
