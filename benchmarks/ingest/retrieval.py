"""Recall of keyword, vector and hybrid search on passages with known answers."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, Target, at_least
from benchmarks.ingest import passages
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
