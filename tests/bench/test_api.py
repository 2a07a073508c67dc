"""The measurements of the API: they end, report every figure, and leave nothing behind."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import pytest

from benchmarks import runner
from benchmarks.api import command
from benchmarks.api.sizes import QUICK
from quire.errors import BadInput

pytestmark = pytest.mark.bench

TINY = dataclasses.replace(
    QUICK,
    jobs=400,
    users=10,
    requests=2,
    page_requests=2,
    latencies=2,
    streams=3,
    events_per_second=20.0,
    stream_seconds=0.6,
    upload_bytes=2 << 20,
    upload_rounds=1,
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", ["embedded", "postgres"])
def test_each_measurement_reports_its_figures(database: str, request: pytest.FixtureRequest):
    if database == "postgres":
        database = request.getfixturevalue("pg_url")
    place = Path(tempfile.gettempdir())
    before = set(place.glob("quire-bench-*"))
    names = list(command.MEASURES)
    report = runner.run(database, names, TINY, is_quick=True, measures=command.MEASURES)
    figures = [figure for _, _, figure in report["figures"]]
    assert report["failures"] == []
    assert {name for _, name, _ in report["figures"]} == set(command.MEASURES)
    assert all(figure.value >= 0 for figure in figures)
    assert len({figure.name for figure in figures}) == len(figures)
    assert set(place.glob("quire-bench-*")) <= before


def test_an_unknown_measurement_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match="lists, pages"):
        command.main(only=["speed"])
