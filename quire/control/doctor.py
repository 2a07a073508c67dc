"""Examines the whole database, all tenants: every invariant of the design. It changes nothing."""

from dataclasses import dataclass, field
from typing import Any

from quire.store import migrate
from quire.store.engine import Database
from quire.store.invariants import INVARIANTS, violators

#: How many examples a violation names.
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold: how often, and where."""

    name: str
    count: int
    examples: list[int | str]
    sentence: str


@dataclass(frozen=True, slots=True)
class Report:
    """What an examination found."""

    checked: int
    violations: list[Violation] = field(default_factory=list)

    @property
    def is_healthy(self) -> bool:
        """Whether every invariant holds."""
        return not self.violations


def examine(db: Database, *, sweep_interval: float = 10.0) -> Report:
    """Check every invariant, each in a short read of its own; what a sweep will mend is let pass.

    Things that other processes mend at their next sweep may take two of `sweep_interval` seconds.
    """
    if (outdated := _schema(db)) is not None:
        # Queries that this Quire has would not fit the tables of another.
        return Report(1, [outdated])
    found = []
    for invariant in INVARIANTS:
        with db.read() as conn:
            now = db.now(conn)
            clocks = {"wall": now.wall, "lease": now.lease, "slack": 2 * sweep_interval}
            count, examples = violators(conn, invariant, clocks, limit=SHOWN)
        if count:
            found.append(Violation(invariant.name, count, examples, invariant.sentence))
    return Report(1 + len(INVARIANTS), found)


def as_json(report: Report) -> dict[str, Any]:
    """Write a report as people and programs see it."""
    names = ("name", "count", "examples", "sentence")
    return {
        "checked": report.checked,
        "healthy": report.is_healthy,
        "violations": [
            {name: getattr(violation, name) for name in names} for violation in report.violations
        ],
    }


def _schema(db: Database) -> Violation | None:
    with db.read() as conn:
        found, last = migrate.version(conn), migrate.known()[-1]
    if found == last:
        return None
    sentence = f"The schema is version {last}. It is {found}; run `quire migrate`."
    if found > last:
        sentence = f"The schema is version {last}. It is {found}: a later Quire wrote it."
    return Violation("schema.version", 1, [found], sentence)
