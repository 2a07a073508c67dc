"""A crawl of a hundred thousand files that is killed goes on where it was.

`--chaos-crawl` sets the number of files. Only the listing runs; the documents stay queued.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from quire.control import jobs
from quire.fetch.items import PAGE_ITEMS
from quire.store.db.schema.documents import documents, generations
from quire.store.db.schema.queue import tasks
from tests.integration.processes import Site
from tests.shelf import PLAIN
from tests.waiting import until

#: Not a divisor of a page: pages begin and end within folders.
FOLDER = 800
#: After which part of the listing the worker is killed.
KILLS = (0.05, 0.15, 0.25, 0.35, 0.45)
#: What the process that lists may grow by while it does more than half of the work.
GROWTH = 16 << 20

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]


class Opened(NamedTuple):
    """A folder that a process opened, and how large the process was then."""

    pid: int
    resident: int
    folder: str


@pytest.fixture
def crawl(site: Site) -> Site:
    """A home whose workers list a made source."""
    site.settings["plugins"] = str(Path(__file__).with_name("crawl_file.py"))
    return site


def make(root: Path, count: int) -> None:
    for number in range(count):
        if number % FOLDER == 0:
            folder = root / f"{number // FOLDER:05}"
            folder.mkdir(parents=True)
        (folder / f"{number:06}.txt").touch()


def opened(site: Site) -> list[Opened]:
    lines = (site.home / "folders.txt").read_text().splitlines()
    words = [line.split(" ", 2) for line in lines]
    return [Opened(int(pid), int(resident), folder) for pid, resident, folder in words]


def pages(site: Site) -> int:
    return sum(row.name.startswith("list 0.") for row in site.rows("steps"))


def count(site: Site, column: sa.Column[int], *where: sa.ColumnElement[bool]) -> tuple[int, int]:
    """Count rows, and how many documents they are of."""
    query = sa.select(sa.func.count(), sa.func.count(column.distinct())).where(*where)
    with site.app.db.read() as conn:
        rows, distinct = conn.execute(query).one()
        return rows, distinct


def _has_listed(site: Site, enough: float) -> bool:
    return pages(site) >= enough


def kill_and_list(site: Site, job_id: int, files: int) -> None:
    """Kill the worker whenever it has listed some more; let the last one come to the end."""
    for part in KILLS:
        worker = site.start()
        enough = part * files / PAGE_ITEMS
        until(partial(_has_listed, site, enough), within=600, what=site.logs)
        assert site.rows("tasks", job_id=job_id, kind="ingest")[0].state == "running"
        worker.kill()
    worker = site.start()
    first = {"job_id": job_id, "kind": "ingest"}
    until(lambda: site.rows("tasks", **first)[0].state == "done", within=1800, what=site.logs)
    assert worker.leave() == 0


def test_a_killed_crawl_goes_on_where_it_was(
    crawl: Site, tmp_path: Path, pytestconfig: pytest.Config
):
    site = crawl
    files = pytestconfig.getoption("--chaos-crawl")
    root = tmp_path / "crawl"
    make(root, files)
    jobs.pause(site.app.caller, "ingest.document")
    began = time.monotonic()
    job_id = site.submit("ingest", sources=[str(root)], settings=PLAIN)
    kill_and_list(site, job_id, files)
    seconds = time.monotonic() - began

    # Each file once, whatever was begun and lost.
    assert count(site, documents.c.id) == (files, files)
    assert count(site, generations.c.document_id) == (files, files)
    queued = count(site, tasks.c.document_id, tasks.c.kind == "ingest.document")
    assert queued == (files, files)
    assert pages(site) == -(-files // PAGE_ITEMS)
    totals = {k: v for k, v in json.loads(site.job(job_id).result).items() if v}
    assert totals == {"new": files}

    # A try opens the root, the folder it had come to, and no more than a page was lost.
    times = Counter(each.folder for each in opened(site))
    tries = times.pop(str(root))
    again = sum(times.values()) - len(times)
    assert len(times) == -(-files // FOLDER)
    assert tries <= len(KILLS) + 1
    assert again <= (tries - 1) * (PAGE_ITEMS // FOLDER + 2)

    last = opened(site)[-1].pid
    sizes = [each.resident for each in opened(site) if each.pid == last]
    half = len(sizes) // 2
    grown = max(sizes[half:]) - max(sizes[:half])
    print(
        f"{files} files in {seconds:.0f} s; {tries} tries; folders opened again: {again} of "
        f"{len(times)}; resident {sizes[0] >> 20} to {max(sizes) >> 20} MiB, "
        f"second half {grown / 2**20:+.1f} MiB over {len(sizes)} folders"
    )
    assert grown < GROWTH
    site.assert_healthy()
