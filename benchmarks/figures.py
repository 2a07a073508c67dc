"""A figure: a measured value, its target, and its ratio to the bare loop in the same run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """The value a figure must reach, or must not exceed."""

    limit: float
    at_least: bool

    def is_met(self, value: float) -> bool:
        """Return whether a value meets the target."""
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {number(self.limit)}"


def at_least(limit: float) -> Target:
    """Return a target that a value must reach."""
    return Target(limit, True)


def at_most(limit: float) -> Target:
    """Return a target that a value must not exceed."""
    return Target(limit, False)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `bare` is the bare loop's value for the same work, in the same unit."""

    name: str
    value: float
    unit: str
    bare: float | None = None
    target: Target | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The value as a multiple of the bare loop's."""
        return self.value / self.bare if self.bare else None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without one."""
        return None if self.target is None else self.target.is_met(self.value)

    def as_json(self) -> dict[str, Any]:
        """Return all fields, and the derived values."""
        target = None if self.target is None else str(self.target)
        return {**asdict(self), "target": target, "ratio": self.ratio, "met": self.is_met}


def percentile(values: Sequence[float], share: float) -> float:
    """Return the given quantile of the values, such as 0.95 for p95."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def rate(times: Sequence[float]) -> float:
    """Return ends per second after the first tenth, to exclude the start."""
    ordered = sorted(times)
    first = len(ordered) // 10
    return (len(ordered) - first - 1) / max(ordered[-1] - ordered[first], 1e-9)


def table(figures: Sequence[Figure]) -> str:
    """Format the figures as a table."""
    head = ("figure", "value", "unit", "bare loop", "× bare", "target", "", "note")
    lines = [head, *(_cells(one) for one in figures)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    right = {1, 3, 4}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cells(one: Figure) -> tuple[str, ...]:
    verdict = {True: "met", False: "MISSED", None: ""}[one.is_met]
    return (
        one.name,
        number(one.value),
        one.unit,
        "" if one.bare is None else number(one.bare),
        "" if one.ratio is None else number(one.ratio),
        "" if one.target is None else str(one.target),
        verdict,
        one.note,
    )


def number(value: float) -> str:
    """Format a number with its significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
