"""Prometheus metrics: a tenant's work from the database, HTTP requests from this process.

Counts come from rows that all processes write, so every API process reports the same. Retention
deletes rows, so each process adds up the increases that it sees: a counter never falls, but starts
at what is stored when the process starts. Results are cached, longer if counting takes longer.
"""

import dataclasses
import threading
from collections import Counter as Counted
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from quire.api.auth.authenticate import Reader
from quire.api.response_cache import ResponseCache
from quire.api.responses import problem_responses
from quire.app import App
from quire.control import queries
from quire.control.queries import Metrics
from quire.model.access import Role

router = APIRouter(tags=["health"])
#: Seconds for which results are cached at least; longer if counting takes long.
KEEP = 2.0
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Metrics", "content": {"text/plain": {"schema": {"type": "string"}}}},
    **problem_responses(),
}


class MetricsExporter:
    """The metrics of one API process."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "quire_http_requests", "Requests served by this process.",
            ["method", "route", "status"], registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "quire_http_request_seconds", "Request duration in this process.",
            ["method", "route"], registry=self.registry, buckets=_BUCKETS,
        )  # fmt: skip
        self._lock = threading.Lock()
        self._recent = ResponseCache()
        self._known: dict[str, set[tuple[str, str]]] = {}
        self._totals_by_key = MonotonicCounters()

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one completed request; clients choose no label, or they could make any number."""
        method, route = method if method in _METHODS else "other", route or "unknown"
        self._requests.labels(method, route, str(status)).inc()
        # A stream lasts as long as a page is open.
        if route != "/api/events":
            self._seconds.labels(method, route).observe(seconds)

    def text(self, tenant: str, streams: int, *, is_operator: bool) -> bytes:
        """Return a tenant's metrics; an operator also gets those of this process."""
        with self._lock:
            counted = self._counted(tenant)
            told = list(_families(counted, lambda *at: self._totals_by_key.total(tenant, *at)))
        written = generate_latest(_Fixed(told))
        if is_operator:
            open_now = GaugeMetricFamily(
                "quire_http_streams", "Open event streams of this process.", streams
            )
            # Metrics for all tenants together, so not for each to see.
            refused = CounterMetricFamily(
                "quire_refused_settles", "Results refused because the lease was lost.",
                counted.refused,
            )  # fmt: skip
            written += generate_latest(_Fixed([open_now, refused]))
            written += generate_latest(self.registry)
        return written

    def _counted(self, tenant: str) -> Metrics:
        caller = dataclasses.replace(self._app.caller, tenant=tenant)
        counted: Metrics
        counted, _ = self._recent.get(tenant, lambda: queries.metrics(caller), at_least=KEEP)
        # Deleted rows count as 0, so that an increase from 0 is seen.
        gone = dict.fromkeys(self._known.get(tenant, ()), (0, 0.0))
        self._known[tenant] = {*gone, *counted.runs}
        return counted._replace(runs=gone | counted.runs)


class MonotonicCounters:
    """Sums the increases of counts, so that deleted rows do not make a counter fall."""

    def __init__(self) -> None:
        self._last: dict[tuple[Any, ...], float] = {}
        self._totals: dict[tuple[Any, ...], float] = {}

    def total(self, *key_and_count: Any) -> float:
        """Return the sum of the increases of a count."""
        *key, count = key_and_count
        at = tuple(key)
        rise = max(count - self._last.get(at, 0.0), 0.0)
        self._last[at] = count
        self._totals[at] = self._totals.get(at, 0.0) + rise
        return self._totals[at]


class _Fixed:
    """A fixed set of metrics, as a prometheus_client collector."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


@router.get("/metrics", summary="Prometheus metrics", responses=_ANSWERS)
def metrics(request: Request, caller: Reader) -> Response:
    """Return the tenant's metrics in the Prometheus text format.

    A token of an instance admin, whatever its scopes, also gets those of this process.
    """
    state = request.app.state
    meters: MetricsExporter = state.meters
    is_operator = caller.role is Role.INSTANCE_ADMIN
    text = meters.text(caller.tenant, state.tail.count, is_operator=is_operator)
    return Response(text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


Total = Callable[..., float]


def _families(c: Metrics, total: Total) -> Iterator[Metric]:
    yield _gauges("quire_tasks", "Stored tasks.", ("kind", "state"), c.tasks)
    yield _gauges(
        "quire_oldest_ready_seconds", "Age of the oldest ready task.", ("kind",),
        {(kind,): age for kind, age in c.oldest.items()},
    )  # fmt: skip
    yield GaugeMetricFamily("quire_workers_alive", "Workers that are alive.", c.alive)
    yield from _of_runs(c, total)
    made = CounterMetricFamily("quire_work", "Pages and vectors computed or reused.",
                               labels=["what", "how"])  # fmt: skip
    for key, count in c.work.items():
        what, _, how = key.rpartition("_")
        made.add_metric([what, how], total("work", key, count))
    yield made
    yield CounterMetricFamily(
        "quire_fetched_bytes", "Bytes of distinct files fetched or uploaded.",
        total("bytes", c.bytes_kept),
    )  # fmt: skip


def _of_runs(c: Metrics, total: Total) -> Iterator[Metric]:
    labels = ["kind", "outcome"]
    settles = CounterMetricFamily("quire_settles", "Attempts that ended.", labels=labels)
    seconds = CounterMetricFamily("quire_run_seconds", "Total duration of attempts.", labels=labels)
    claims = CounterMetricFamily("quire_claims", "Tasks claimed.", labels=["kind"])
    lost = CounterMetricFamily(
        "quire_lease_losses", "Attempts whose lease expired.", labels=["kind"]
    )
    claimed: Counted[str] = Counted()
    died: Counted[str] = Counted()
    for (kind, outcome), (count, spent) in c.runs.items():
        settles.add_metric([kind, outcome], total("settles", kind, outcome, count))
        seconds.add_metric([kind, outcome], total("seconds", kind, outcome, spent))
        claimed[kind] += count
        died[kind] += count if outcome == "died" else 0
    for (kind, state), count in c.tasks.items():
        if state == "running":
            claimed[kind] += count
    for kind, count in claimed.items():
        claims.add_metric([kind], total("claims", kind, count))
    for kind, count in died.items():
        lost.add_metric([kind], total("died", kind, count))
    yield from (claims, settles, seconds, lost)


def _gauges(name: str, about: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=list(labels))
    for at, value in values.items():
        family.add_metric(list(at), value)
    return family
