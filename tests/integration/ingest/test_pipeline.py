"""The whole pipeline in every column: files are listed, read, indexed and found, whatever dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quire.control import queries
from quire.control.search import search
from quire.demo import samples
from tests.integration.ingest.test_ingest_deaths import DYING, SETTINGS, book, died_at
from tests.integration.processes import Site
from tests.shelf import Shelf, logical_index
from tests.waiting import until

STAGES = {"fetched", "kept", "planned", "read", "vectors", "swapped", "commit", "committed"}
#: What is asked for at the end; each is on one page of one file.
QUESTIONS = ("vectors page 7", "barrels of cider", "table of tides")


@pytest.mark.core
@pytest.mark.timeout(400)
def test_files_are_found_as_after_a_calm_run_though_children_and_a_worker_were_killed(
    site: Site, tmp_path: Path
):
    folder = tmp_path / "in"
    folder.mkdir()
    for stage in STAGES:
        # Some are read in one task and some in ranges of pages.
        pages = 3 if stage in ("fetched", "kept", "committed") else 10
        (folder / f"die-{stage}.pdf").write_bytes(book(stage, pages))
    (folder / "quay.docx").write_bytes(samples.docx(["Barrels of cider on the quay."]))
    (folder / "tides.csv").write_text("table of tides,noon\nhigh water,six\n")
    (folder / "cut.pdf").write_bytes(book("cut", 3)[:400])
    shelf = Shelf(tmp_path / "calm", folder)
    shelf.ingest(settings=SETTINGS)
    index, expected = shelf.index(), hits(shelf.app)
    shelf.close()

    site.settings.update(plugins=DYING)
    first = site.worker()
    job = site.submit("ingest", sources=[str(folder)], settings=SETTINGS)
    until(lambda: len(died_at(site)) > 2, what=site.logs)
    site.worker()
    first.kill()
    assert site.until_over(job, within=200) == {"completed": 1}, died_at(site)
    assert queries.job(site.app.caller, job)["failed_files"] == 1  # it is cut off
    assert died_at(site) >= STAGES
    assert logical_index(site.app.db, folder) == index
    assert hits(site.app) == expected
    site.assert_healthy()


def hits(app: Any) -> dict[str, tuple[str, int, str]]:
    """The first answer to each question: by words and by meaning, fused."""
    found = {each: search(app.db, "default", each)["items"][0] for each in QUESTIONS}
    return {each: (hit["name"], hit["page"], hit["text"]) for each, hit in found.items()}
