"""Explain a document: what it waits for, why it was indexed, and what was reused."""

import json
from typing import Any

from quire import format
from quire.clock import json_values
from quire.control import documents
from quire.control.caller import Caller
from quire.control.explain import job as explain_job
from quire.control.explain.task import Finding
from quire.model import admission
from quire.model.states import DOCUMENT_LOCKED, DocumentState, GenerationState
from quire.store.reports import documents as reports
from quire.url_secrets import masked


def explain_document(caller: Caller, document_id: int) -> dict[str, Any]:
    """Explain a document's state, what happens next, and what was reused."""
    with caller.db.read() as conn:
        row = documents.row_of(conn, caller, document_id)
        tried = list(reports.generations_of(conn, document_id))
        task_id = None
        if row.state in DOCUMENT_LOCKED:
            task_id = reports.open_task(conn, document_id, row.generation)
    task = None if task_id is None else explain_job.explain_task(caller, task_id)
    finding = _locked(row, task) if row.state in DOCUMENT_LOCKED else _settled(row)
    return {
        **json_values(row, ("id", "name", "state", "generation", "live_generation")),
        **finding.as_json(),
        "until": task["until"] if task else None,
        "why": _why(row),
        "reuse": reuse_words(tried),
        "task": task,
    }


def _locked(row: Any, task: dict[str, Any] | None) -> Finding:
    verb = "is queued" if row.state == DocumentState.QUEUED else "is being indexed"
    if task is None:
        is_queued = row.state == DocumentState.QUEUED
        minutes = (admission.QUEUED_SECONDS if is_queued else admission.INDEXING_SECONDS) / 60
        text = f"Version {row.generation} {verb}, but no task is left to do it."
        step = (
            f"The next ingest of its source restarts it after {minutes:.0f} minutes. "
            f"To restart it now, run `quire document reindex {row.id} --force`."
        )
        return Finding("no_task", text, step, row.queued_at)
    still = f"Version {row.live_generation} stays searchable until then. "
    if row.live_generation is None:
        still = ""
    text = f"Version {row.generation} {verb} by job {row.job_id}. {still}{task['text']}"
    return Finding(task["code"], text, task["next"], row.processing_started_at or row.queued_at)


def _settled(row: Any) -> Finding:
    since = row.processing_finished_at
    if row.state == DocumentState.SUCCESS:
        return _success(row)
    if row.state == DocumentState.NOT_INDEXED:
        text = "Not indexed: its job was cancelled or never started."
        step = f"Nothing happens automatically. Index it with `quire document reindex {row.id}`."
        return Finding("not_indexed", text, step, since)
    kept = "The document is not searchable."
    if row.live_generation is not None:
        kept = f"Version {row.live_generation} is still searchable."
    text = f"Indexing version {row.generation} failed: {masked(row.error or '')} {kept}"
    step = (
        f"Nothing happens automatically. Retry with `quire job retry {row.job_id} --file {row.id}`."
    )
    return Finding("failed", text, step, since)


def _success(row: Any) -> Finding:
    spoilt = " No text was found in it." if not row.chunks else ""
    if row.page_errors:
        spoilt += (
            f" {format.count(row.page_errors, 'page')} could not be read: see "
            f"`quire document show {row.id}`."
        )
    gone = " Its source no longer lists it." if row.gone_at else ""
    text = (
        f"Version {row.live_generation} is searchable: {format.count(row.pages or 0, 'page')}, "
        f"{format.count(row.chunks or 0, 'chunk')}.{spoilt}{gone}"
    )
    step = "Up to date. It is re-indexed when the file or the corpus settings change."
    return Finding("success", text, step, row.processing_finished_at)


def _why(row: Any) -> str:
    if row.why is None:
        return "It has never been indexed."
    if row.why == "new":
        return f"First indexed as version {row.generation}."
    return f"Version {row.generation} was started because {admission.reason_text(row.why)}."


def reuse_words(tried: list[Any]) -> str:
    """Say what the newest generation reused, and why the rest was computed."""
    if not tried:
        return "Nothing has been computed yet."
    newest = tried[0]
    if newest.digest is None:
        ended = newest.state != GenerationState.BUILDING
        return "It ended before anything was read." if ended else "Nothing has been read yet."
    stats = reports.reuse(newest.reused)
    if stats["whole"]:
        return "Everything was reused: the same bytes were already indexed with the same settings."
    parts = [_stats(stats)]
    if len(tried) > 1 and (causes := _differences(newest, tried[1])):
        parts.append(f"The rest could not be reused: {'; '.join(causes)}.")
    return " ".join(part for part in parts if part)


def _stats(stats: dict[str, Any]) -> str:
    nouns = {"pages": "page", "ocr": "OCR page", "vectors": "vector"}
    kept = [format.count(stats[k], noun) for k, noun in nouns.items() if stats.get(k)]
    made = [format.count(n, noun) for k, noun in nouns.items() if (n := stats["made"].get(k))]
    saved = f" (saved {format.span(stats['seconds_saved'])})" if stats["seconds_saved"] else ""
    words = [f"Reused: {', '.join(kept)}{saved}."] if kept else []
    words += [f"Computed: {', '.join(made)}."] if made else []
    return " ".join(words)


def _differences(newest: Any, before: Any) -> list[str]:
    """List the differences between two generations that prevent reuse."""
    causes = []
    if before.digest is None:
        causes.append(f"version {before.generation} ended before its file was fetched")
    elif before.digest != newest.digest:
        causes.append(f"the file has changed since version {before.generation}")
    mine, other = json.loads(newest.settings), json.loads(before.settings)
    changed = [
        f"{name} changed from {other.get(name)!r} to {mine.get(name)!r}"
        for name in sorted({*mine, *other})
        if mine.get(name) != other.get(name)
    ]
    if changed:
        causes.append(f"the settings changed ({', '.join(changed)})")
    if not causes and before.recipe and before.recipe != newest.recipe:
        causes.append("the parser or the embedding model has a new version")
    return causes
