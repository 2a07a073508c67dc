"""`quire bench queue`: runs the measurements on each database and reports them."""

import dataclasses
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import server
from benchmarks.figures import Figure, table
from benchmarks.queue import (
    brokers,
    claims,
    delivery,
    drain,
    enqueue,
    fairness,
    idle,
    pickup,
    recovery,
    rivals,
    scaling,
    stopping,
)
from benchmarks.queue.sizes import FULL, QUICK, Sizes
from benchmarks.site import Site
from quire.errors import BadInput, QuireError, Refused
from quire.store.db import sqlite

Measure = Callable[[Site, Any], Iterator[Figure]]
MEASURES: dict[str, Measure] = {
    "enqueue": enqueue.measure,
    "drain": drain.measure,
    "pickup": pickup.measure,
    "claim": claims.measure,
    "recovery": recovery.measure,
    "stop": stopping.measure,
    "idle": idle.measure,
    "fairness": fairness.measure,
    "workers": scaling.measure,
}
#: Those that need another queue, and those that need a broker.
RIVALS: dict[str, Measure] = {"pgqueuer": rivals.measure}
BROKERED: dict[str, Measure] = {"celery": delivery.measure, "purge": delivery.purge}
_CLOSING = "Every commit is flushed, the bare loop's too."


def main(
    *,
    database: str | None = None,
    quick: bool = False,
    only: Sequence[str] | None = None,
    json: str | None = None,
    broker: str | None = None,
    peers: str | None = None,
) -> int:
    """Measure, print a table, write JSON where asked; returns the exit code."""
    sizes = dataclasses.replace(QUICK if quick else FULL, peers=peers)
    measures = {**MEASURES, **RIVALS, **BROKERED}
    chosen = _measurable(named(only, measures), sizes, database, broker, is_asked=bool(only))
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder, ExitStack() as stack:
        if broker is not None:
            url = stack.enter_context(brokers.opened(broker, Path(folder, "broker")))
            sizes = dataclasses.replace(sizes, broker=url)
        report = run(database or "both", chosen, sizes, is_quick=quick, measures=measures)
    if json != "-":
        sys.stdout.write(as_text(report) + "\n")
    if json is not None:
        write_json(report, json)
    return 1 if report["failures"] else 0


def named(only: Sequence[str] | None, measures: Mapping[str, Measure] = MEASURES) -> list[str]:
    """Read the names of measurements; none means all."""
    names = [part for text in only or () for part in text.split(",") if part]
    if unknown := [name for name in names if name not in measures]:
        known = ", ".join(measures)
        raise BadInput(f"--only {unknown[0]}: no such measurement. Known: {known}.")
    return [name for name in measures if not names or name in names]


def _measurable(
    names: Sequence[str], sizes: Sizes, database: str | None, broker: str | None, *, is_asked: bool
) -> list[str]:
    """Leave out what lacks a broker or another queue; what was asked for by name is refused."""
    lacking: dict[str, str] = {}
    if broker is None:
        lacking.update(dict.fromkeys(BROKERED, "it needs --broker URL, or --broker valkey"))
    if "pgqueuer" in names and (reason := rivals.missing(sizes)):
        lacking["pgqueuer"] = reason
    if database == "embedded":
        lacking.update(dict.fromkeys((*RIVALS, *BROKERED), "it is measured on PostgreSQL only"))
    for name in [name for name in names if name in lacking]:
        if is_asked:
            raise BadInput(f"--only {name}: {lacking[name]}.")
        _note(f"{name} is left out: {lacking[name]}")
    return [name for name in names if name not in lacking]


def run(
    database: str,
    names: Sequence[str],
    sizes: Any,
    *,
    is_quick: bool,
    measures: Mapping[str, Measure] = MEASURES,
    closing: str = _CLOSING,
) -> dict[str, Any]:
    """Run measurements on the databases asked for; returns everything that is reported."""
    began = time.monotonic()
    machine = _machine()
    figures: list[tuple[str, str, Figure]] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder, ExitStack() as stack:
        for site in _sites(database, Path(folder), stack):
            for name in names:
                _note(f"{site.name}: {name}")
                try:
                    for one in measures[name](site, sizes):
                        figures.append((site.name, name, one))
                except QuireError as error:
                    failures.append(f"{site.name}: {name}: {error}")
                    _note(f"{failures[-1]}")
    return {
        "machine": {**machine, "load_after": os.getloadavg()[0]},
        "is_quick": is_quick,
        "seconds": time.monotonic() - began,
        "figures": figures,
        "failures": failures,
        "closing": closing,
    }


def as_text(report: dict[str, Any]) -> str:
    """Lay a report out for people."""
    about = ", ".join(f"{key} {value}" for key, value in report["machine"].items())
    lines = [about]
    for site in dict.fromkeys(site for site, _, _ in report["figures"]):
        own = [one for each, _, one in report["figures"] if each == site]
        lines += ["", site, table(own)]
    kind = "quick: too small to judge targets by" if report["is_quick"] else "full"
    lines += ["", *(f"FAILED {each}" for each in report["failures"])]
    lines += [f"{report['seconds']:.0f} s, {kind}. {report['closing']}"]
    return "\n".join(lines)


def write_json(report: dict[str, Any], target: str) -> None:
    """Write a report for programs, to a file or to standard output."""
    figures = [
        {"database": site, "measurement": name, **one.as_json()}
        for site, name, one in report["figures"]
    ]
    text = json.dumps({**report, "figures": figures}, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)


def _sites(database: str, folder: Path, stack: ExitStack) -> Iterator[Site]:
    if database in ("embedded", "both"):
        yield Site("sqlite", folder)
    if database == "embedded":
        return
    if database not in ("both", "postgres"):
        yield Site("postgres", folder, database)
    elif reason := server.missing():
        if database == "postgres":
            raise Refused(f"--database postgres: {reason}.")
        _note(f"postgres is left out: {reason}")
    else:
        yield Site("postgres", folder, stack.enter_context(server.running(folder / "pg")))


def _machine() -> dict[str, Any]:
    began = time.perf_counter()
    sum(range(3_000_000))
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite.sqlite_module().sqlite_version,
        "spin_ms": round((time.perf_counter() - began) * 1e3, 1),
        "flush_ms": round(_flush_seconds() * 1e3, 2),
        "load_before": os.getloadavg()[0],
    }


def _flush_seconds() -> float:
    """Return how long it takes to make 4 KB durable in the folder for temporary files."""
    with tempfile.TemporaryFile() as file:
        spans = []
        for _ in range(50):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            spans.append(time.perf_counter() - began)
    return sorted(spans)[len(spans) // 2]


def _note(text: str) -> None:
    sys.stderr.write(f"bench  {text}\n")
    sys.stderr.flush()
