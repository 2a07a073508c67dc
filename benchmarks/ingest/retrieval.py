"""Recall of keyword, vector and hybrid search on reports and passages with known answers.

Weights were chosen on one half of the questions about reports; the figures are of the other half.
The passages are the guard against harm: short texts whose names say nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, Target, at_least
from benchmarks.ingest import passages, report_library
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.ingest.worker import IngestWorker, ingest_worker, temporary_folder
from benchmarks.installation import Backend
from quire.control.search import search

_MODES = {"text": "keyword", "vector": "vector", "hybrid": "hybrid"}
_SETS = {
    "all questions": passages.ALIKE + passages.PARAPHRASES,
    "worded alike": passages.ALIKE,
    "paraphrased": passages.PARAPHRASES,
}


def measure(backend: Backend, sizes: IngestSizes) -> Iterator[Figure]:
    """Ingest each passage as a file, and search for every question."""
    folder = temporary_folder(backend.folder, "passages-")
    for number, text in enumerate(passages.passages()):
        (folder / f"{number}.txt").write_text(text)
    with ingest_worker(backend, is_warm=False) as running:
        running.ingest(folder)
        for name, questions in _SETS.items():
            yield from _figures(running, name, questions)
    with ingest_worker(backend, is_warm=False) as running:
        folder = temporary_folder(backend.folder, "reports-")
        yield from _of_reports(running, folder, sizes.library_reports)


def _of_reports(running: IngestWorker, folder: Path, count: int) -> Iterator[Figure]:
    made = report_library.reports()[:count]
    report_library.write(folder, made)
    running.ingest(folder, thumbnails=False)
    rows = running.installation.rows("SELECT name, id FROM documents")
    ids = {str(name): int(number) for name, number in rows}
    asked = [each for each in report_library.questions(made) if not each.is_tuning]
    note = f"{len(asked)} questions, {len(made)} reports"
    words: dict[str, float] = {}
    for mode, by in _MODES.items():
        ranks = [_ranks(running, mode, made[each.report], each, ids) for each in asked]
        for scope, at in (("all", 0), ("within", 1)):
            for most in (1, 5, 10):
                name = f"page@{most}, {scope}, {by}"
                share = sum(rank[at] <= most for rank in ranks) / len(ranks)
                target = at_least(words[f"{scope}{most}"]) if mode == "hybrid" else None
                if mode == "text":
                    words[f"{scope}{most}"] = share
                yield Figure(name, share, "", target=target, note=note)
        share = sum(rank[2] <= 5 for rank in ranks) / len(ranks)
        yield Figure(f"report@5, {by}", share, "", note=note)


def _ranks(
    running: IngestWorker,
    mode: str,
    report: report_library.Report,
    asked: report_library.Question,
    ids: Mapping[str, int],
) -> tuple[int, int, int]:
    """Return the rank of the page over all and within its report, and that of the report."""
    app = running.installation.app
    run = partial(search, app.db, app.settings.tenant, asked.words, mode=mode, limit=10)
    everywhere = run()["items"]
    within = run(documents=[ids[report.name]])["items"]
    found = [(hit["name"], hit["page"]) for hit in everywhere]
    return (
        _position(found, (report.name, asked.page)),
        _position([hit["page"] for hit in within], asked.page),
        _position([name for name, _ in found], report.name),
    )


def _position(found: Sequence[object], wanted: object) -> int:
    return found.index(wanted) + 1 if wanted in found else len(found) + 100


def _figures(
    running: IngestWorker, name: str, questions: Sequence[passages.Question]
) -> Iterator[Figure]:
    found = {mode: passages.recall(partial(_numbers, running, mode), questions) for mode in _MODES}
    for mode, by in _MODES.items():
        note = f"{len(questions)} questions, {len(passages.passages())} passages"
        yield Figure(f"recall@1, {name}, {by}", found[mode].first, "", note=note)
        target: Target | None = None
        if mode == "hybrid" and name != "worded alike":
            target = at_least(found["text"].five)
        yield Figure(f"recall@5, {name}, {by}", found[mode].five, "", target=target, note=note)


def _numbers(running: IngestWorker, mode: str, words: str) -> list[int]:
    app = running.installation.app
    found = search(app.db, app.settings.tenant, words, mode=mode, limit=5)
    return [int(Path(item["name"]).stem) for item in found["items"]]
