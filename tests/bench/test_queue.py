"""The measurements themselves: they end, report every figure, and leave nothing behind."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path

import pytest

from benchmarks import postgres_server, runner
from benchmarks.figures import Figure, at_least, at_most, percentile, rate, table
from benchmarks.queue import command
from benchmarks.queue.sizes import QUICK
from quire.errors import BadInput

pytestmark = pytest.mark.bench

TINY = dataclasses.replace(
    QUICK,
    singles=3,
    bulk=200,
    bulk_batch=100,
    drain=80,
    bare_drain=20,
    owners=4,
    pickups=2,
    waiting=(50, 100),
    not_due=50,
    claims=2,
    batch_claims=2,
    batch=8,
    recoveries=1,
    stops=1,
    large=2_500,
    idle_seconds=0.2,
    per_owner=20,
    cancelled=20,
    workers=(1, 2),
    waiting_seconds=0.5,
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", ["embedded", "postgres"])
def test_each_measurement_reports_its_figures(database: str, request: pytest.FixtureRequest):
    if database == "postgres":
        database = request.getfixturevalue("pg_url")
    report = runner.run(
        database, list(command.MEASURES), TINY, is_quick=True, measures=command.MEASURES
    )
    figures = [figure for _, _, figure in report["figures"]]
    told = {name for _, name, _ in report["figures"]}
    assert report["failures"] == []
    assert told == set(command.MEASURES)
    assert all(figure.value >= 0 for figure in figures)
    assert all(figure.bare is None or figure.bare >= 0 for figure in figures)
    assert len({figure.name for figure in figures}) == len(figures)


def test_a_report_is_the_same_in_json_and_as_a_table(tmp_path: Path):
    report = runner.run("embedded", ["fairness"], TINY, is_quick=True, measures=command.MEASURES)
    runner.write_json(report, str(tmp_path / "report.json"))
    read = json.loads((tmp_path / "report.json").read_text())
    text = runner.as_text(report)
    assert [one["name"] for one in read["figures"]]
    assert all(one["name"] in text for one in read["figures"])
    assert {"value", "unit", "bare", "ratio", "target", "met"} <= set(read["figures"][0])


def test_a_machine_that_others_use_is_reported():
    assert runner.busy_warning({"busy_before": 3.0}) is None
    assert "other programs used 80 %" in (runner.busy_warning({"busy_before": 80.4}) or "")


def test_nothing_is_left_in_the_folder_for_temporary_files():
    place = Path(tempfile.gettempdir())
    before = set(place.glob("quire-bench-*"))
    runner.run("embedded", ["enqueue"], TINY, is_quick=True, measures=command.MEASURES)
    assert set(place.glob("quire-bench-*")) <= before


def test_an_unknown_measurement_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match="enqueue, drain"):
        runner.selected(["speed"], command.MEASURES)


def test_measurements_are_named_by_commas_or_one_by_one():
    chosen = runner.selected(["drain,enqueue", "idle"], command.MEASURES)
    assert chosen == ["enqueue", "drain", "idle"]
    assert runner.selected(None, command.MEASURES) == list(command.MEASURES)


def test_a_server_of_its_own_makes_commits_durable(run_folder: Path):
    if reason := postgres_server.missing():
        pytest.skip(reason)
    import psycopg

    with postgres_server.running(run_folder / "bench-pg") as url, psycopg.connect(url) as conn:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            row = conn.execute(f"SHOW {name}".encode()).fetchone()
            assert row == ("on",)


def test_a_figure_says_whether_its_target_is_met():
    assert Figure("x", 9.0, "s", target=at_most(10)).is_met
    assert not Figure("x", 9.0, "s", target=at_least(10)).is_met
    assert Figure("x", 9.0, "s").is_met is None
    assert Figure("x", 9.0, "s", bare=3.0).ratio == 3.0
    assert "MISSED" in table([Figure("x", 9.0, "s", target=at_least(10))])


def test_a_rate_leaves_out_the_first_tenth():
    times = [0.0] + [100.0 + n for n in range(9)]
    assert rate(times) == pytest.approx(1.0)
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
