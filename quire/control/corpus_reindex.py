"""Indexes the outdated documents of a corpus again, and says before what that costs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from quire.control import corpora, jobs
from quire.control.caller import Caller
from quire.model.pipeline import Pipeline
from quire.model.records import Submission
from quire.model.states import DOCUMENT_LOCKED
from quire.store.documents import admission, reindex

_BATCH = 500


class Plan(NamedTuple):
    """What a re-index of a corpus would do."""

    documents: int  # that are indexed again
    unchanged: int
    busy: int  # queued or being indexed already
    not_indexed: int  # without a searchable generation: `quire ingest --retry-failed`
    pages: int  # that are read again, at most
    ocr_pages: int  # whose recognised text is reused
    kept_pages: int  # that are only split or embedded again
    chunks: int  # that may be embedded again, at most
    seconds: float  # that reading those pages took


def plan(caller: Caller, name: str, settings: Mapping[str, Any]) -> Plan:
    """Compare the documents of a corpus with what they would be now; nothing is written."""
    from quire.ingest import outdated

    shown = corpora.shown(caller, name)
    wanted = admission.canonical_json(asdict(Pipeline().merged(shown["settings"])))
    name_of = outdated.embedder_names(settings)
    total: Counter[str] = Counter()
    seconds = 0.0
    after, found = 0, 0
    while True:
        with caller.db.read() as conn:
            rows = reindex.of_corpus(conn, shown["id"], after=after, limit=_BATCH)
            if not rows:
                break
            after, found = rows[-1].id, found + len(rows)
            stages = {
                row.id: stage for row in rows if (stage := outdated.stage_of(row, wanted, name_of))
            }
            busy = {row.id for row in rows if row.id in stages and row.state in DOCUMENT_LOCKED}
            again = {each: stage for each, stage in stages.items() if each not in busy}
            counts = reindex.page_counts(conn, list(again))
        total.update(
            documents=len(again), unchanged=len(rows) - len(stages), busy=len(busy),
            chunks=sum(row.chunks or 0 for row in rows if row.id in again),
        )  # fmt: skip
        for document_id, via, pages, took in counts:
            if again[document_id] != "read":
                total["kept_pages"] += pages
            elif via == "ocr":
                total["ocr_pages"] += pages
            else:
                total["pages"] += pages
                seconds += took or 0.0
    total["not_indexed"] = max(shown["documents"] - found, 0)
    given = {each: total[each] for each in Plan._fields if each != "seconds"}
    return Plan(**given, seconds=round(seconds, 1))


def start(caller: Caller, name: str) -> int:
    """Submit the job that indexes the outdated documents of a corpus again; returns its id."""
    corpora.shown(caller, name)
    payload = {"sources": [], "corpus": name, "outdated": True}
    [job_id] = jobs.submit(caller, [Submission("ingest", payload)], is_own=True)
    return job_id
