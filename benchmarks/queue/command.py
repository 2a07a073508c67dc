"""`python -m benchmarks queue`: which measurements of the queue there are, and what each needs."""

import dataclasses
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks import runner
from benchmarks.queue import (
    brokers,
    celery_delivery,
    claim,
    drain,
    enqueue,
    fairness,
    idle,
    large_job,
    pickup,
    recovery,
    stop,
    worker_scaling,
)
from benchmarks.queue.peers import comparison
from benchmarks.queue.sizes import FULL, QUICK
from quire.errors import BadInput

MEASURES: dict[str, runner.Measure] = {
    "enqueue": enqueue.measure,
    "drain": drain.measure,
    "pickup": pickup.measure,
    "claim": claim.measure,
    "recovery": recovery.measure,
    "stop": stop.measure,
    "large": large_job.measure,
    "idle": idle.measure,
    "fairness": fairness.measure,
    "workers": worker_scaling.measure,
}
#: Need a broker.
BROKERED: dict[str, runner.Measure] = {
    "celery": celery_delivery.measure,
    "purge": celery_delivery.purge,
}
#: Compares with other queues, and prints a table of its own.
PEERS = "peers"
NOTE = "Every commit is flushed to disk, the bare loop's too."


def main(
    *,
    database: str | None = None,
    quick: bool = False,
    only: Sequence[str] | None = None,
    json: str | None = None,
    broker: str | None = None,
    peer_python: str | None = None,
    rows: Sequence[str] | None = None,
) -> int:
    """Run the chosen measurements and report them; returns the exit code."""
    if list(only or ()) == [PEERS]:
        return comparison.main(
            database=database, quick=quick, json=json, peer_python=peer_python, wanted=rows
        )
    if rows or peer_python:
        raise BadInput("--rows and --peers are for `--only peers`, which runs alone.")
    sizes = QUICK if quick else FULL
    measures = {**MEASURES, **BROKERED}
    names = runner.selected(only, measures)
    names = _measurable(names, database, broker, is_asked=bool(only))
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder, ExitStack() as stack:
        if broker is not None:
            url = stack.enter_context(brokers.opened(broker, Path(folder, "broker")))
            sizes = dataclasses.replace(sizes, broker=url)
        report = runner.run(
            database or "both", names, sizes, is_quick=quick, measures=measures, note=NOTE
        )
    return runner.publish(report, json)


def _measurable(
    names: Sequence[str], database: str | None, broker: str | None, *, is_asked: bool
) -> list[str]:
    """Skip measurements whose broker is missing; reject them if they were named."""
    missing: dict[str, str] = {}
    if broker is None:
        missing.update(dict.fromkeys(BROKERED, "it needs --broker URL, or --broker valkey"))
    if database == "embedded":
        missing.update(dict.fromkeys(BROKERED, "it is measured on PostgreSQL only"))
    for name in [name for name in names if name in missing]:
        if is_asked:
            raise BadInput(f"--only {name}: {missing[name]}.")
        runner.progress(f"{name} is skipped: {missing[name]}")
    return [name for name in names if name not in missing]
