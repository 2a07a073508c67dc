"""Response times of the API's lists and of the dashboard's pages with many jobs."""

import re
from collections.abc import Iterator

import httpx

from benchmarks.api.server import FIRST, create_jobs, serving, timed
from benchmarks.api.sizes import ApiSizes
from benchmarks.figures import Figure, at_most, percentile
from benchmarks.installation import Backend

TARGET = at_most(30.0)
PAGES = ("/", "/jobs", "/jobs?state=failed", "/documents", "/search", "/workers", "/settings")
_PARTS = re.compile(r'(?:src|href)="(/static/[^"]+)"')


def lists(backend: Backend, sizes: ApiSizes) -> Iterator[Figure]:
    """Time the first page, a deep page, and each filter."""
    middle = FIRST + sizes.jobs // sizes.users // 2 * 100 * sizes.users
    paths = {
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
        for name, path in paths.items():
            timed(target.http, path, 3)
            spans = timed(target.http, path, sizes.requests)
            note = f"p95, {sizes.jobs:,} jobs, p50 {percentile(spans, 0.5):.1f} ms"
            yield Figure(f"list: {name}", percentile(spans, 0.95), "ms", target=TARGET, note=note)
        # CPU time is comparable even on a busy machine.
        before = sum(target.program.cpu_times()[:2])
        timed(target.http, paths["first page"], sizes.requests)
        spent = (sum(target.program.cpu_times()[:2]) - before) / sizes.requests * 1e3
        yield Figure("list: CPU time of a first page", spent, "ms")
        spans = timed(target.http, "/api/status", max(sizes.requests // 10, 2))
        yield Figure("status", percentile(spans, 0.95), "ms", note=f"p95, {sizes.jobs:,} jobs")


def pages(backend: Backend, sizes: ApiSizes) -> Iterator[Figure]:
    """Time each page, and sum up the bytes of everything it loads, uncached and uncompressed."""
    with serving(
        backend, lambda installation: create_jobs(installation, sizes.jobs, sizes.users)
    ) as target:
        http = target.http
        http.headers.update({"Accept": "text/html", "Accept-Encoding": "identity"})
        for path in PAGES:
            timed(http, path, 2)
            spans = timed(http, path, sizes.page_requests)
            note = f"p95, {sizes.jobs:,} jobs, p50 {percentile(spans, 0.5):.1f} ms"
            yield Figure(
                f"page {path}", percentile(spans, 0.95), "ms", target=at_most(100.0), note=note
            )
            yield Figure(
                f"page {path}: bytes loaded", _weight(http, path) / 1e3, "KB", target=at_most(150.0)
            )


def _weight(http: httpx.Client, path: str) -> int:
    page = http.get(path)
    parts = [http.get(each.replace("&amp;", "&")) for each in set(_PARTS.findall(page.text))]
    return len(page.content) + sum(len(part.content) for part in parts)
