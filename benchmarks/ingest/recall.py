"""How often Quire's own search finds the right passage: by words, by vectors, and by both."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, Target, at_least
from benchmarks.ingest import retrieval
from benchmarks.ingest.running import Mill, mill, shelf
from benchmarks.ingest.sizes import IngestSizes
from benchmarks.site import Site
from quire.control.search import search

_MODES = {"text": "by words", "vector": "by vectors", "hybrid": "by both"}
_SETS = {
    "all questions": retrieval.ALIKE + retrieval.PARAPHRASES,
    "worded alike": retrieval.ALIKE,
    "paraphrased": retrieval.PARAPHRASES,
}


def measure(site: Site, sizes: IngestSizes) -> Iterator[Figure]:
    """Ingest each passage as a file and ask every question."""
    folder = shelf(site.folder, "passages-")
    for number, text in enumerate(retrieval.passages()):
        (folder / f"{number}.txt").write_text(text)
    with mill(site, is_warm=False) as running:
        running.ingest(folder)
        for name, questions in _SETS.items():
            yield from _figures(running, name, questions)


def _figures(running: Mill, name: str, questions: Sequence[retrieval.Question]) -> Iterator[Figure]:
    found = {mode: retrieval.recall(partial(_numbers, running, mode), questions) for mode in _MODES}
    for mode, by in _MODES.items():
        note = f"{len(questions)} questions, {len(retrieval.passages())} passages"
        yield Figure(f"recall@1, {name}, {by}", found[mode].first, "", note=note)
        target: Target | None = None
        if mode == "hybrid" and name != "worded alike":
            target = at_least(found["text"].five)
        yield Figure(f"recall@5, {name}, {by}", found[mode].five, "", target=target, note=note)


def _numbers(running: Mill, mode: str, words: str) -> list[int]:
    app = running.bed.app
    found = search(app.db, app.settings.tenant, words, mode=mode, limit=5)
    return [int(Path(item["name"]).stem) for item in found["items"]]
