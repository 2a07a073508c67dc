"""The benchmarks start and report figures. `make bench` runs the other tests of this folder."""

from __future__ import annotations

from benchmarks import runner
from benchmarks.queue import command
from tests.bench import test_ingest, test_queue


def test_a_benchmark_of_the_queue_reports_its_figures():
    report = runner.run(
        "embedded", ["enqueue"], test_queue.TINY, is_quick=True, measures=command.MEASURES
    )
    assert report["failures"] == []
    assert report["figures"]


def test_a_benchmark_of_ingestion_reports_its_figures():
    assert test_ingest.figures_of(["again"])
