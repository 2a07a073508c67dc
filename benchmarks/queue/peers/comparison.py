"""Runs the comparison: the queues take turns, on one PostgreSQL, one Redis and one disk."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import postgres_server, runner
from benchmarks.installation import Backend
from benchmarks.queue import brokers
from benchmarks.queue.peers import crash, latency, rows, throughput
from benchmarks.queue.peers.report import Measured, as_markdown
from benchmarks.queue.peers.rows import Interpreters, Row
from benchmarks.queue.peers.site import Servers
from benchmarks.queue.peers.sizes import FULL, QUICK, Sizes
from quire.errors import QuireError


def main(
    *,
    database: str | None,
    quick: bool,
    json: str | None,
    peer_python: str | None,
    wanted: Sequence[str] | None,
) -> int:
    """Run the comparison and print it as Markdown; returns the exit code."""
    chosen = rows.selected(wanted)
    interpreters = Interpreters(peer_python)
    began, machine = time.monotonic(), runner.machine()
    with _servers(interpreters, database, chosen) as servers:
        notes = [f"{r.title} was skipped: {why}." for r in chosen if (why := servers.missing(r))]
        present = [row for row in chosen if servers.missing(row) is None]
        about = {**_about(machine), **_versions(servers)}
        found, failures = measured(present, servers, QUICK if quick else FULL)
    about["load after"] = f"{os.getloadavg()[0]:.1f}"
    about["seconds"] = f"{time.monotonic() - began:.0f}"
    if warning := runner.busy_warning(machine):
        notes.append(warning)
    if quick:
        notes.append("A quick run: too small to compare anything.")
    notes += [f"FAILED: {each}" for each in failures]
    versions = {row: interpreters.versions(row) for row in present}
    text = as_markdown(about, found, versions, QUICK if quick else FULL, notes)
    if json != "-":
        sys.stdout.write(text + "\n")
    if json is not None:
        runner.write_as_json({"about": about, "notes": notes, "rows": _as_json(found)}, json)
    return 1 if failures else 0


def measured(
    chosen: Sequence[Row], servers: Servers, sizes: Sizes
) -> tuple[dict[Row, Measured], list[str]]:
    """Measure each row; returns what was found, and what failed."""
    found, failures = {row: Measured() for row in chosen}, []
    queues = [row for row in chosen if row.is_queue]
    turns = [(row, "drain") for _ in range(sizes.rounds) for row in chosen]
    turns += [(row, "pick-up") for _ in range(sizes.pickup_rounds) for row in queues]
    for row, what in turns:
        runner.progress(f"{row.title}: {what}")
        try:
            if what == "drain":
                found[row].throughputs.append(throughput.measure(row, servers, sizes))
            else:
                found[row].latencies.append(latency.measure(row, servers, sizes))
        except QuireError as error:
            failures.append(f"{row.title}: {what}: {error}")
            runner.progress(failures[-1])
    runner.progress("kill -9")
    try:
        for row, crashed in crash.measure(queues, servers, sizes):
            runner.progress(f"{row.title}: kill -9: done")
            found[row].crash = crashed
    except QuireError as error:
        failures.append(f"kill -9: {error}")
        runner.progress(failures[-1])
    return found, failures


@contextmanager
def _servers(
    interpreters: Interpreters, database: str | None, chosen: Sequence[Row]
) -> Iterator[Servers]:
    """Start the servers that the rows need and that can be started here."""
    needed = {name for row in chosen for name in row.servers}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quire-bench-")))
        postgres, redis = None, None
        if "postgres" in needed and database != "embedded":
            if database not in (None, "both", "postgres"):
                postgres = Backend("postgres", folder, database)
            elif postgres_server.missing() is None:
                url = stack.enter_context(postgres_server.running(folder / "pg"))
                postgres = Backend("postgres", folder, url)
        if "redis" in needed and brokers.missing() is None:
            url = stack.enter_context(brokers.opened(brokers.OWN, folder / "broker"))
            redis = url.rpartition("/")[0]
        yield Servers(folder, interpreters, postgres, redis)


def _about(machine: dict[str, Any]) -> dict[str, str]:
    return {
        "on": f"{datetime.now(UTC):%Y-%m-%d}",
        "system": machine["system"],
        "cores": machine["cores"],
        "Python": machine["python"],
        "fsync": f"{machine['fsync_ms']} ms",
        "SQLite": machine["sqlite"],
        "load before": f"{machine['load_before']:.1f}",
    }


def _versions(servers: Servers) -> dict[str, str]:
    found = {}
    if servers.postgres is not None:
        found["PostgreSQL"] = servers.postgres.version()
    if servers.redis is not None:
        found["Valkey"] = brokers.version(servers.redis)
    return found


def _as_json(found: dict[Row, Measured]) -> dict[str, Any]:
    return {row.name: one.as_json() for row, one in found.items()}
