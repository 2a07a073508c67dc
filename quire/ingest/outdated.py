"""Queue the documents of a corpus that today's settings and parsers would index differently.

A generation stores the digest of everything that decided its content. Where that differs, the
document is indexed again from its stored file; what its pages share with the earlier generation,
such as the text of an OCR, is reused as in any other ingest.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quire.errors import BadInput
from quire.ingest import resources
from quire.ingest.fetch import recipe_of
from quire.model.context import TaskContext
from quire.model.pipeline import REPEATED, Pipeline
from quire.store import Transaction
from quire.store.documents import admission, reindex
from quire.store.queue import owners

#: Documents that one transaction queues.
BATCH = 100

NameOf = Callable[[Pipeline], str]


def embedder_names(settings: Mapping[str, Any]) -> NameOf:
    """Return what names the embedder of a pipeline."""
    return lambda pipeline: resources.embedder_of(settings, pipeline).name


def stage_of(row: Any, settings: str, name_of: NameOf) -> str | None:
    """Return the first stage that is to be repeated for a document: read, cut or embed; or None.

    `settings` are those of the corpus.
    """
    wanted = Pipeline().merged(json.loads(admission.document_settings(settings, row.settings)))
    if row.recipe == recipe_of(row.made_as, wanted, name_of(wanted)):
        return None
    try:
        before = Pipeline().merged(json.loads(row.pipeline))
        is_same_code = row.recipe == recipe_of(row.made_as, before, name_of(before))
    except BadInput:  # a plugin or a model that is not there any more
        return "read"
    changed = {
        stage for name, stage in REPEATED.items() if getattr(before, name) != getattr(wanted, name)
    }
    stages = [stage for stage in ("read", "cut", "embed") if stage in changed]
    return stages[0] if stages and is_same_code else "read"


def queue(ctx: TaskContext, corpus_id: int, settings: str) -> Counter[str]:
    """Queue what is outdated; return how many documents, by reason."""
    name_of = embedder_names(ctx.settings)
    counts: Counter[str] = Counter()
    after = number = 0
    while after is not None:
        ctx.check()

        def act(tx: Transaction, after: int = after) -> dict[str, Any]:
            rows = reindex.of_corpus(tx.connection, corpus_id, after=after, limit=BATCH)
            outdated = [row for row in rows if stage_of(row, settings, name_of)]
            found = Counter({"unchanged": len(rows) - len(outdated)})
            found.update(_admit(tx, ctx.job_id, corpus_id, settings, outdated))
            return {"counts": dict(found), "after": rows[-1].id if rows else None}

        stored = ctx.step(f"outdated {number}", act)
        counts.update(stored["counts"])
        ctx.progress(None, f"{sum(counts.values()):,} documents compared")
        after, number = stored["after"], number + 1
    return counts


def _admit(
    tx: Transaction, job_id: int, corpus_id: int, settings: str, rows: Sequence[Any]
) -> Counter[str]:
    counts: Counter[str] = Counter()
    by_source = sorted(rows, key=lambda row: (row.source or "", row.id))
    for source, group in itertools.groupby(by_source, key=lambda row: row.source or ""):
        inside = list(group)
        request = admission.AdmissionRequest(
            owners.by_id(tx.connection, tx.owner_id), job_id, source, settings, (corpus_id,),
            is_forced=True,
        )  # fmt: skip
        files = [
            admission.ListedFile(row.uri, row.name, row.seen or "", row.folder, row.parent_id)
            for row in inside
        ]
        admitted = admission.admit(tx.connection, request, files, now=tx.now)
        for row, one in zip(inside, admitted, strict=True):
            counts[one.why] += 1
            if one.should_index:
                resources.spawn_document(tx, one, {"digest": row.made_of, "size": row.size_of})
    return counts
