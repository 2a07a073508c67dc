"""Response times of lists with many jobs."""

from collections.abc import Iterator

from benchmarks.api.server import FIRST, create_jobs, serving, timed
from benchmarks.api.sizes import ApiSizes
from benchmarks.figures import Figure, at_most, percentile
from benchmarks.installation import Backend

TARGET = at_most(30.0)


def measure(backend: Backend, sizes: ApiSizes) -> Iterator[Figure]:
    """Time the first page, a deep page, and each filter."""
    middle = FIRST + sizes.jobs // sizes.users // 2 * 100 * sizes.users
    lists = {
        "first page": "/api/jobs?limit=50",
        "deep page": f"/api/jobs?limit=50&cursor={middle}",
        "failed": "/api/jobs?limit=50&state=failed",
        "completed": "/api/jobs?limit=50&state=completed",
        "of one user": "/api/jobs?limit=50&user=user-7",
        "failed of one user": "/api/jobs?limit=50&user=user-7&state=failed",
        "of a kind": "/api/jobs?limit=50&kind=bench.fail",
        "of a kind without any": "/api/jobs?limit=50&kind=never",
        "tasks of a job": f"/api/jobs/{FIRST + 100 * sizes.users}/tasks",
    }
    with serving(
        backend, lambda installation: create_jobs(installation, sizes.jobs, sizes.users)
    ) as target:
        for name, path in lists.items():
            timed(target.http, path, 3)
            spans = timed(target.http, path, sizes.requests)
            note = f"p95, {sizes.jobs:,} jobs, p50 {percentile(spans, 0.5):.1f} ms"
            yield Figure(f"list: {name}", percentile(spans, 0.95), "ms", target=TARGET, note=note)
        # CPU time is comparable even on a busy machine.
        before = sum(target.program.cpu_times()[:2])
        timed(target.http, lists["first page"], sizes.requests)
        spent = (sum(target.program.cpu_times()[:2]) - before) / sizes.requests * 1e3
        yield Figure("list: CPU time of a first page", spent, "ms")
        spans = timed(target.http, "/api/status", max(sizes.requests // 10, 2))
        yield Figure("status", percentile(spans, 0.95), "ms", note=f"p95, {sizes.jobs:,} jobs")
