"""Real files of others, by a real worker: each ends, says why it failed, and kills nobody.

`--real-files FOLDER` names them; without it, the corpus beside the checkout, if there is one.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.integration.processes import Site

SHARED = Path(__file__).resolve().parents[3] / "shared" / "corpus"
#: How a run ends that the file ended for its process.
KILLED = ("crashed", "died", "memory", "timeout", "stalled")
#: What nobody should have to read as the reason of a failure.
RAW = ("Traceback", "Error(", "Exception", "<class", "object at 0x")

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Path:
    given = request.config.getoption("--real-files")
    found = Path(given) if given else SHARED
    if not found.is_dir():
        pytest.skip(f"{found}: there is no such folder; name one by --real-files")
    return found.resolve()


def test_every_real_file_ends_and_none_kills_its_process(
    site: Site, folder: Path, capsys: pytest.CaptureFixture[str]
):
    site.worker()
    job = site.submit("ingest", sources=[str(folder)])
    site.until_over(job, within=7000)
    rows = site.rows("documents")
    with capsys.disabled():
        print(f"\n{_told(rows)}")
    assert rows
    assert {row.state for row in rows} <= {"success", "failed"}
    assert [row.name for row in rows if row.state == "failed" and not _is_plain(row.error)] == []
    killed = [row for row in site.rows("attempts") if row.outcome in KILLED]
    assert [(row.task_id, row.outcome, row.error) for row in killed] == []
    site.assert_healthy()


def _is_plain(error: str | None) -> bool:
    return bool(error) and not any(word in error for word in RAW)  # type: ignore[operator]


def _told(rows: object) -> str:
    counts: Counter[str] = Counter()
    failures = []
    for row in rows:  # type: ignore[attr-defined]
        spoilt = row.state == "success" and row.page_errors
        counts["success with errors" if spoilt else row.state] += 1
        if row.state == "failed":
            failures.append(f"  {row.uri.rpartition('/')[2]}: {row.error}")
    return "\n".join([str(dict(counts)), *failures])
