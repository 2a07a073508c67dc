"""Says of a document what it waits for, why it was indexed again, and why work was not reused."""

import json
from typing import Any

from quire.clock import iso
from quire.control import documents
from quire.control.caller import Caller
from quire.control.explain import job as explain_job
from quire.control.explain.wording import Finding, count_of
from quire.model import admission
from quire.model.states import DOCUMENT_LOCKED, DocumentState, GenerationState
from quire.store.reports import documents as reports


def explain_document(caller: Caller, document_id: int) -> dict[str, Any]:
    """Explain a document: how it stands, what happens next, and what was reused."""
    with caller.db.read() as conn:
        row = documents.row_of(conn, caller, document_id)
        tried = list(reports.generations_of(conn, document_id))
        task_id = None
        if row.state in DOCUMENT_LOCKED:
            task_id = reports.open_task(conn, document_id, row.generation)
    task = None if task_id is None else explain_job.explain_task(caller, task_id)
    finding = _locked(row, task) if row.state in DOCUMENT_LOCKED else _settled(row)
    return {
        "id": row.id,
        "name": row.name,
        "state": row.state,
        "generation": row.generation,
        "live_generation": row.live_generation,
        "code": finding.code,
        "text": finding.text,
        "next": finding.next,
        "since": iso(finding.since),
        "until": task["until"] if task else None,
        "why": _why(row),
        "reuse": reuse_words(tried),
        "task": task,
    }


def _locked(row: Any, task: dict[str, Any] | None) -> Finding:
    verb = "is queued" if row.state == DocumentState.QUEUED else "is being indexed"
    if task is None:
        minutes = (
            admission.QUEUED_SECONDS
            if row.state == DocumentState.QUEUED
            else admission.INDEXING_SECONDS
        ) / 60
        text = f"Generation {row.generation} {verb}, but no task is left that works on it."
        step = (
            f"An ingest of its source takes it over after {minutes:.0f} minutes; "
            f"`quire document reindex {row.id} --force` begins anew at once."
        )
        return Finding("no_task", text, step, row.queued_at)
    text = f"Generation {row.generation} {verb} by job {row.job_id}. {_still(row)}{task['text']}"
    return Finding(task["code"], text, task["next"], row.processing_started_at or row.queued_at)


def _still(row: Any) -> str:
    if row.live_generation is None:
        return ""
    return f"Generation {row.live_generation} stays searchable until then. "


def _settled(row: Any) -> Finding:
    since = row.processing_finished_at
    if row.state == DocumentState.SUCCESS:
        return _success(row)
    if row.state == DocumentState.NOT_INDEXED:
        text = "It is not indexed: the work on it was cancelled, or never began."
        step = f"Nothing by itself; `quire document reindex {row.id}` or an ingest of its source."
        return Finding("not_indexed", text, step, since)
    kept = "Nothing of it is searchable."
    if row.live_generation is not None:
        kept = f"Generation {row.live_generation} is still searchable."
    text = f"Generation {row.generation} failed: {row.error} {kept}"
    step = f"Nothing by itself; `quire job retry {row.job_id} --file {row.id}` tries it again."
    return Finding("failed", text, step, since)


def _success(row: Any) -> Finding:
    spoilt = ""
    if row.page_errors:
        spoilt = (
            f" Not readable: {count_of(row.page_errors, 'page')}; "
            f"`quire document show {row.id}` says why."
        )
    gone = " Its source does not list it any more." if row.gone_at else ""
    text = (
        f"Generation {row.live_generation} is searchable: {count_of(row.pages or 0, 'page')}, "
        f"{count_of(row.chunks or 0, 'chunk')}.{spoilt}{gone}"
    )
    step = "Nothing until its source tells of other content or the settings of its corpus change."
    return Finding("success", text, step, row.processing_finished_at)


def _why(row: Any) -> str:
    if row.why is None:
        return "It was never asked to be indexed."
    return f"Generation {row.generation} was begun because {admission.reason_text(row.why)}."


def reuse_words(tried: list[Any]) -> str:
    """Say what the newest generation reused, and why the rest of it was made."""
    if not tried:
        return "There is no work yet that could be reused."
    newest = tried[0]
    if newest.digest is None:
        ended = newest.state != GenerationState.BUILDING
        return "It ended before anything was read." if ended else "Nothing of it has been read yet."
    account = reports.reuse(newest.reused)
    if account["whole"]:
        return "All was reused: the same bytes were read in the same way before."
    parts = [_account(account)]
    if len(tried) == 1:
        parts.append("It is the first generation of this document.")
    elif causes := _differences(newest, tried[1]):
        parts.append(f"Not all could be reused: {'; '.join(causes)}.")
    return " ".join(part for part in parts if part)


def _account(account: dict[str, Any]) -> str:
    nouns = {"pages": "page", "ocr": "recognised page", "vectors": "vector"}
    kept = [count_of(account[k], noun) for k, noun in nouns.items() if account.get(k)]
    made = [count_of(n, noun) for k, noun in nouns.items() if (n := account["made"].get(k))]
    saved = f", which saved {account['seconds_saved']:.1f} s" if account["seconds_saved"] else ""
    words = [f"Reused: {', '.join(kept)}{saved}."] if kept else []
    words += [f"Made: {', '.join(made)}."] if made else []
    return " ".join(words)


def _differences(newest: Any, before: Any) -> list[str]:
    """Name what differs between two generations that matters to reuse."""
    causes = []
    if before.digest is None:
        causes.append(f"generation {before.generation} ended before its bytes were fetched")
    elif before.digest != newest.digest:
        causes.append(f"the file's bytes are others than those of generation {before.generation}")
    mine, other = json.loads(newest.settings), json.loads(before.settings)
    changed = [
        f"{name} was {other.get(name)!r} and is {mine.get(name)!r}"
        for name in sorted({*mine, *other})
        if mine.get(name) != other.get(name)
    ]
    if changed:
        causes.append(f"other settings ({', '.join(changed)})")
    if not causes and before.recipe and before.recipe != newest.recipe:
        causes.append("another version of the parser or the embedder")
    return causes
