"""Response times of the dashboard's pages with many jobs, and the bytes each loads."""

import re
from collections.abc import Iterator

import httpx

from benchmarks.api.server import create_jobs, serving, timed
from benchmarks.api.sizes import ApiSizes
from benchmarks.figures import Figure, at_most, percentile
from benchmarks.installation import Backend

PAGES = ("/", "/jobs", "/jobs?state=failed", "/documents", "/search", "/workers", "/settings")
_PARTS = re.compile(r'(?:src|href)="(/static/[^"]+)"')


def measure(backend: Backend, sizes: ApiSizes) -> Iterator[Figure]:
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
