"""Promises G1, G2 and G5 over documents: whatever is killed, the index is that of a calm run."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from quire.control import jobs
from tests import documents
from tests.integration.processes import Running, Site, pause
from tests.shelf import FUSED, Shelf, fill, logical_index, rows_of
from tests.waiting import until

DYING = str(Path(__file__).with_name("dying_file.py"))
SMALL = [
    "begin", "fetch", "fetched", "put", "kept", "sniff", "look", "looked", "read", "cut", "embed",
    "store", "chunks", "vectors", "embedded", "leaves", "filled", "swapped", "settle", "settled",
    "commit", "committed",
]  # fmt: skip
LARGE = ["plan", "planned", "read", "store", "leaves", "swapped", "commit", "committed"]
CHANGED = ["plan", "planned", "read", "cut", "embed", "store", "vectors", "leaves", "filled"]
CHANGED += ["swapped", "settle", "settled", "commit", "committed"]
SWAP = 12  #: More than the statements of a swap.
SETTINGS = {**FUSED, "page_size": 4}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def calm(tmp_path: Path, folder: Path) -> dict[str, Any]:
    """What an undisturbed run in one process makes of the folder."""
    shelf = Shelf(tmp_path / "calm", folder)
    shelf.ingest(settings=SETTINGS)
    index = shelf.index()
    shelf.close()
    return index


def book(name: str, count: int) -> bytes:
    return documents.pdf(*[f"{name}, page {n} of {count}" for n in range(1, count + 1)])


def ingest(site: Site, folder: Path) -> int:
    return site.submit("ingest", sources=[str(folder)], settings=SETTINGS)


def assert_same(site: Site, folder: Path, expected: dict[str, Any]) -> None:
    found = logical_index(site.app.db, folder)
    assert found.keys() == expected.keys()
    assert {k: v for k, v in found.items() if v != expected[k]} == {}
    assert [row for row in rows_of(site.app.db, "generations") if row.generation > 1] == []
    site.assert_healthy()


def died_at(site: Site) -> set[str]:
    return {path.name.removeprefix("died-") for path in site.home.glob("died-*")}


@pytest.mark.timeout(400)
def test_a_child_killed_at_any_stage_of_a_small_document_leaves_the_index_of_a_calm_run(
    site: Site, folder: Path, tmp_path: Path
):
    for stage in SMALL:
        (folder / f"die-{stage}.pdf").write_bytes(book(stage, 3))
    killed(site, folder, tmp_path, {*SMALL, "list-1"})


@pytest.mark.timeout(400)
def test_a_child_killed_at_any_stage_of_a_split_document_leaves_the_index_of_a_calm_run(
    site: Site, folder: Path, tmp_path: Path
):
    for stage in LARGE:
        (folder / f"die-{stage}.pdf").write_bytes(book(stage, 10))
    killed(site, folder, tmp_path, {*LARGE, "list-1"})


@pytest.mark.timeout(400)
def test_a_child_killed_while_it_reads_what_was_changed_leaves_the_index_of_a_calm_run(
    site: Site, folder: Path, tmp_path: Path
):
    for stage in CHANGED:
        (folder / f"die-{stage}.pdf").write_bytes(book(stage, 10))
    shelf = Shelf(tmp_path / "calm", folder)
    shelf.ingest(settings=SETTINGS)
    first = site.worker()
    assert site.until_over(ingest(site, folder), within=200) == {"completed": 1}
    first.kill()
    for stage in CHANGED:
        texts = [f"{stage}, page {n} of 10" for n in range(1, 11)]
        texts[2:4] = [f"an edited page of {stage}", f"another one of {stage}"]
        (folder / f"die-{stage}.pdf").write_bytes(documents.pdf(*texts))
    shelf.ingest(settings=SETTINGS)
    expected = shelf.index()
    shelf.close()
    site.settings.update(plugins=DYING, stop_grace=5)
    site.worker()
    assert site.until_over(ingest(site, folder), within=300) == {"completed": 1}, died_at(site)
    assert set(CHANGED) <= died_at(site)
    found = logical_index(site.app.db, folder)
    assert {k: v for k, v in found.items() if v != expected[k]} == {}
    site.assert_healthy()


@pytest.mark.timeout(400)
def test_a_child_killed_at_every_statement_of_a_swap_leaves_the_index_of_a_calm_run(
    site: Site, folder: Path, tmp_path: Path
):
    for number in range(SWAP):
        (folder / f"die-swap-{number}.txt").write_text(f"words of text {number}")
    died = killed(site, folder, tmp_path, {f"swap-{n}" for n in range(4)} | {"list-1"})
    assert f"swap-{SWAP - 1}" not in died, "a swap has more statements than are tried here"


def killed(site: Site, folder: Path, tmp_path: Path, expected: set[str]) -> set[str]:
    index = calm(tmp_path, folder)
    site.settings.update(plugins=DYING, stop_grace=5)
    site.worker()
    job = ingest(site, folder)
    assert site.until_over(job, within=300) == {"completed": 1}, died_at(site)
    died = died_at(site)
    assert expected <= died
    deaths = [row for row in site.rows("attempts") if row.outcome == "died"]
    # A child that died after its commit had nothing left to lose.
    assert len(died) - 2 <= len(deaths) <= len(died)
    assert_same(site, folder, index)
    return died


def test_a_killed_listing_goes_on_behind_the_last_page_that_was_stored(site: Site, folder: Path):
    for number in range(2_100):
        (folder / f"{number:04}.txt").touch()
    site.settings.update(plugins=DYING)
    site.worker()
    jobs.pause(site.app.caller, "ingest.document")
    job = ingest(site, folder)
    until(lambda: site.rows("tasks", job_id=job, kind="ingest", state="done"), what=site.logs)
    assert died_at(site) == {"list-1", "list-2"}
    counts = json.loads(site.job(job).result)
    assert {why: count for why, count in counts.items() if count} == {"new": 2_100}
    assert len(site.rows("documents")) == len(site.rows("generations")) == 2_100
    assert len(site.rows("tasks", job_id=job)) == 2_101
    pages = [row for row in site.rows("steps") if row.name.startswith("list")]
    # The first try stored nothing, the second the first page, the third the rest.
    assert [(row.name, row.fence) for row in pages] == [
        ("list 0.0", 2), ("list 0.1", 3), ("list 0.2", 3),
    ]  # fmt: skip
    site.assert_healthy()


@pytest.mark.timeout(400)
def test_random_kills_over_a_mixed_folder_leave_the_index_of_a_calm_run(
    site: Site, folder: Path, tmp_path: Path
):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    fill(folder, 36)
    index = calm(tmp_path, folder)
    job = ingest(site, folder)
    workers = [site.worker()]
    for _ in range(25):
        if site.job(job).state not in ("pending", "running"):
            break
        pause(chance.uniform(0.1, 1.0))
        workers = harmed(site, workers, chance)
    site.until_over(job, within=300)
    assert_same(site, folder, index)


def harmed(site: Site, workers: Sequence[Running], chance: random.Random) -> list[Running]:
    """Kill a child, or now and then a whole worker, and keep one at work."""
    living = [each for each in workers if each.popen.poll() is None]
    victim = chance.choice(living)
    children = victim.children()
    if chance.random() < 0.25 or not children:
        victim.kill()
        living.remove(victim)
    else:
        with contextlib.suppress(psutil.NoSuchProcess):
            chance.choice(children).kill()
    return living or [site.worker()]
