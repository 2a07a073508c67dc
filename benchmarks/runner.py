"""Runs measurements on SQLite and PostgreSQL, and reports them as a table or as JSON."""

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

import psutil

from benchmarks import postgres_server
from benchmarks.figures import Figure, table
from benchmarks.installation import Backend
from quire.errors import BadInput, QuireError, Refused
from quire.store.db import sqlite

#: Takes a backend and the sizes of its group, and yields figures.
Measure = Callable[[Backend, Any], Iterator[Figure]]

#: Percent of all cores that others use, from which on figures mean little.
BUSY = 20.0


def selected(only: Sequence[str] | None, measures: Mapping[str, Measure]) -> list[str]:
    """Parse --only; without it, all measurements are selected."""
    names = [part for text in only or () for part in text.split(",") if part]
    if unknown := [name for name in names if name not in measures]:
        known = ", ".join(measures)
        raise BadInput(f"--only {unknown[0]}: there is no such measurement. Known: {known}.")
    return [name for name in measures if not names or name in names]


def run(
    database: str,
    names: Sequence[str],
    sizes: Any,
    *,
    is_quick: bool,
    measures: Mapping[str, Measure],
    note: str = "",
) -> dict[str, Any]:
    """Run measurements on the chosen databases; returns the report. `note` is its last line."""
    began = time.monotonic()
    about = machine()
    figures: list[tuple[str, str, Figure]] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="quire-bench-") as folder, ExitStack() as stack:
        for backend in _backends(database, Path(folder), stack):
            for name in names:
                progress(f"{backend.name}: {name}")
                try:
                    for one in measures[name](backend, sizes):
                        figures.append((backend.name, name, one))
                except QuireError as error:
                    failures.append(f"{backend.name}: {name}: {error}")
                    progress(failures[-1])
    return {
        "machine": {**about, "load_after": os.getloadavg()[0]},
        "is_quick": is_quick,
        "seconds": time.monotonic() - began,
        "figures": figures,
        "failures": failures,
        "note": note,
    }


def publish(report: dict[str, Any], json: str | None) -> int:
    """Print the report, write JSON if asked to; returns the exit code of the command."""
    if json != "-":
        sys.stdout.write(as_text(report) + "\n")
    if json is not None:
        write_json(report, json)
    return 1 if report["failures"] else 0


def as_text(report: dict[str, Any]) -> str:
    """Format a report as tables, one for each database."""
    lines = _about(report["machine"])
    for backend in dict.fromkeys(backend for backend, _, _ in report["figures"]):
        own = [one for each, _, one in report["figures"] if each == backend]
        lines += ["", backend, table(own)]
    kind = "quick run: too small to judge targets" if report["is_quick"] else "full run"
    lines += ["", *(f"FAILED {each}" for each in report["failures"])]
    lines += [f"{report['seconds']:.0f} s, {kind}. {report['note']}"]
    return "\n".join(lines)


def _about(machine: Mapping[str, Any]) -> list[str]:
    load = f"load {machine['load_before']:.1f} before, {machine['load_after']:.1f} after"
    lines = [
        f"{machine['system']}, {machine['cores']} cores, Python {machine['python']}, SQLite "
        f"{machine['sqlite']}; an fsync takes {machine['fsync_ms']} ms, a loop of Python "
        f"{machine['spin_ms']} ms; {load}"
    ]
    return [*lines, warning] if (warning := busy_warning(machine)) else lines


def busy_warning(machine: Mapping[str, Any]) -> str | None:
    """Return a warning if others used the machine before the run began."""
    if machine["busy_before"] < BUSY:
        return None
    return (
        f"WARNING: other programs used {machine['busy_before']:.0f} % of the cores when the run "
        "began. Its figures mean little; ratios within the run suffer least."
    )


def write_json(report: dict[str, Any], target: str) -> None:
    """Write a report as JSON, to a file or, for `-`, to standard output."""
    figures = [
        {"database": backend, "measurement": name, **one.as_json()}
        for backend, name, one in report["figures"]
    ]
    write_as_json({**report, "figures": figures}, target)


def write_as_json(value: Any, target: str) -> None:
    """Write a value as JSON, to a file or, for `-`, to standard output."""
    text = json.dumps(value, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)


def _backends(database: str, folder: Path, stack: ExitStack) -> Iterator[Backend]:
    if database in ("embedded", "both"):
        yield Backend("sqlite", folder)
    if database == "embedded":
        return
    if database not in ("both", "postgres"):
        yield Backend("postgres", folder, database)
    elif reason := postgres_server.missing():
        if database == "postgres":
            raise Refused(f"--database postgres: {reason}.")
        progress(f"postgres is skipped: {reason}")
    else:
        yield Backend(
            "postgres", folder, stack.enter_context(postgres_server.running(folder / "pg"))
        )


def machine() -> dict[str, Any]:
    """Describe this machine, and how busy and fast it is."""
    began = time.perf_counter()
    sum(range(3_000_000))
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite.sqlite_module().sqlite_version,
        "spin_ms": round((time.perf_counter() - began) * 1e3, 1),
        "fsync_ms": round(_fsync_seconds() * 1e3, 2),
        "load_before": os.getloadavg()[0],
        "busy_before": psutil.cpu_percent(interval=1.0),
    }


def _fsync_seconds() -> float:
    """Return the median time of an fsync of 4 KB in the folder for temporary files."""
    with tempfile.TemporaryFile() as file:
        spans = []
        for _ in range(50):
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            spans.append(time.perf_counter() - began)
    return sorted(spans)[len(spans) // 2]


def progress(text: str) -> None:
    """Print a line about the run to standard error."""
    sys.stderr.write(f"bench  {text}\n")
    sys.stderr.flush()
