"""The comparison as Markdown: every queue, then Quire against the best of the others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from benchmarks.figures import number, percentile
from benchmarks.queue.peers.crash import Crash
from benchmarks.queue.peers.latency import Latency
from benchmarks.queue.peers.rows import Row
from benchmarks.queue.peers.sizes import Sizes
from benchmarks.queue.peers.throughput import Throughput

_NONE = "–"


@dataclass
class Measured:
    """What was measured of one queue."""

    throughputs: list[Throughput] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    crash: Crash | None = None

    def as_json(self) -> dict[str, Any]:
        """Return everything."""
        return {
            "throughputs": [one._asdict() for one in self.throughputs],
            "latencies": [one._asdict() for one in self.latencies],
            "crash": self.crash and self.crash._asdict(),
        }

    def of_rounds(self, column: str) -> list[float]:
        """Return the values of a rate, one for each round; none if the queue cannot do it."""
        found = [getattr(one, column) for one in self.throughputs]
        return [one for one in found if one is not None]

    def rate(self, column: str) -> float | None:
        """Return the median of a rate."""
        return _median(self.of_rounds(column))

    def latency(self, share: float) -> float | None:
        """Return a quantile of all pick-ups, in milliseconds."""
        spans = [span for one in self.latencies for span in one.spans]
        return percentile(spans, share) * 1e3 if spans else None

    def memory(self) -> float | None:
        """Return the memory of the idle processes, in MB."""
        return _median([one.memory for one in self.latencies])

    def rerun(self) -> float | None:
        """Return the median seconds until a job ran again."""
        return _median(self.crash.reruns) if self.crash else None


class Column(NamedTuple):
    """A column that counts: its value, and whether more is better."""

    title: str
    value: Callable[[Measured], float | None]
    is_more_better: bool


COLUMNS = (
    Column("drain", lambda one: one.rate("drain"), True),
    Column("submit one by one", lambda one: one.rate("one_by_one"), True),
    Column("submit in bulk", lambda one: one.rate("in_bulk"), True),
    Column("pick-up p50", lambda one: one.latency(0.5), False),
    Column("pick-up p95", lambda one: one.latency(0.95), False),
    Column("rerun after kill -9, median", Measured.rerun, False),
    Column("lost", lambda one: one.crash and one.crash.lost, False),
    Column("completed twice", lambda one: one.crash and one.crash.twice, False),
)
#: What keeps the jobs, and how the judgement names it.
_STORAGES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}


def as_markdown(
    machine: Mapping[str, object],
    found: Mapping[Row, Measured],
    versions: Mapping[Row, str],
    sizes: Sizes,
    notes: Sequence[str],
) -> str:
    """Format a run as it goes into docs/bench.md."""
    about = ", ".join(f"{key} {value}" for key, value in machine.items())
    lost = f"lost of {sizes.killed_jobs}"
    head = [
        "queue", "drain, jobs/s", "submit one by one, jobs/s", "in bulk, jobs/s",
        "on disk when submitted", "pick-up p50, p95, ms",
        "rerun after kill -9, median, longest, s", lost, "completed twice", "idle memory, MB",
    ]  # fmt: skip
    lines = [about + ".", "", *_table(head, [_cells(row, one) for row, one in found.items()])]
    judged = {row: one for row, one in found.items() if row.is_queue}
    if rows := list(_judgement(judged)):
        lines += ["", "How many times better Quire is than the best of the others:", ""]
        kept = [f"with {name}: best other" for name in _STORAGES.values()]
        lines += _table(["column that counts", *kept, "best Quire: best other"], rows)
    lines += ["", *(f"- {_setup(row, versions[row])}" for row in found)]
    return "\n".join([*lines, *(f"- {note}" for note in notes)])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    ruled = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in ruled]


def _cells(row: Row, one: Measured) -> list[str]:
    pickups = [one.latency(0.5), one.latency(0.95)]
    crash = one.crash
    return [
        row.title,
        _spread(one.of_rounds("drain")),
        _number(one.rate("one_by_one")),
        _number(one.rate("in_bulk")),
        row.durable,
        ", ".join(map(_number, pickups)) if one.latencies else _NONE,
        _reruns(crash),
        str(crash.lost) if crash else _NONE,
        str(crash.twice) if crash else _NONE,
        _number(one.memory()),
    ]


def _reruns(crash: Crash | None) -> str:
    if crash is None:
        return _NONE
    return f"{_median(crash.reruns):.1f}, {max(crash.reruns):.1f}" if crash.reruns else "not seen"


def _setup(row: Row, versions: str) -> str:
    return f"{row.title}{f' ({versions})' if versions else ''}: {row.setup}."


# ------------------------------------------------------------------ judgement


def _judgement(found: Mapping[Row, Measured]) -> list[list[str]]:
    """For each column, compare Quire with the others that keep jobs in the same place, and all."""
    groups = [{r: m for r, m in found.items() if r.storage == name} for name in _STORAGES]
    if not any(row.is_ours for row in found) or all(row.is_ours for row in found):
        return []
    return [[one.title, *(_compared(one, group) for group in [*groups, found])] for one in COLUMNS]


def _compared(column: Column, found: Mapping[Row, Measured]) -> str:
    """Say how many times better the best Quire is than the best other, and name that one."""
    ours, others = _best(column, found, is_ours=True), _best(column, found, is_ours=False)
    if ours is None or others is None:
        return _NONE
    name = others[1].title.partition(",")[0]
    if column.title in ("lost", "completed twice"):
        return f"{ours[0]:.0f}, {name} {others[0]:.0f}"
    ratio = _ratio(column, ours[0], others[0])
    if column.title != "drain":
        return f"{ratio:.2f}, {name}"
    mine, theirs = found[ours[1]].of_rounds("drain"), found[others[1]].of_rounds("drain")
    each = [_ratio(column, *pair) for pair in zip(mine, theirs, strict=True)]
    return f"{ratio:.2f} ({min(each):.2f} to {max(each):.2f}), {name}"


def _best(
    column: Column, found: Mapping[Row, Measured], *, is_ours: bool
) -> tuple[float, Row] | None:
    known = [(column.value(one), row) for row, one in found.items() if row.is_ours == is_ours]
    values = [(value, row) for value, row in known if value is not None]
    best = max if column.is_more_better else min
    return best(values, key=lambda one: one[0]) if values else None


def _ratio(column: Column, ours: float, others: float) -> float:
    return ours / others if column.is_more_better else others / ours


# ------------------------------------------------------------------ numbers


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _number(value: float | None) -> str:
    return _NONE if value is None else number(value)


def _spread(values: Sequence[float]) -> str:
    if not values:
        return _NONE
    middle = number(median(values))
    return f"{middle} ({number(min(values))}–{number(max(values))})" if len(values) > 1 else middle
