"""Lists sources page by page: each page is noted, judged and queued in one commit.

The cursor is stored with it, so that a crawl that was killed goes on where it was. What is new,
changed or unchanged is decided from what the source tells, before any byte is read.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from quire.fetch.items import Item, Listed, seen
from quire.ingest import place
from quire.model.pipeline import Pipeline
from quire.model.records import About
from quire.parse import plugged
from quire.store import admit, corpora, owners


def run(
    ctx: Any,
    sources: Sequence[str],
    corpus: str | None = None,
    settings: Mapping[str, Any] | None = None,
    force: bool = False,
    options: Mapping[str, Any] | None = None,
    uploads: Sequence[Mapping[str, Any]] = (),
) -> None:
    """List every source of a job, then say what was found.

    Of `uploads` nothing is to be listed: their documents were made when they came.
    """
    began = ctx.step("begin", lambda tx: _begin(tx, ctx.job_id, corpus, settings or {}))
    totals: Counter[str] = Counter()
    for at, url in enumerate(sources):
        totals += _list(ctx, at, url, began, force=force, options=options or {})
        ctx.progress(None, _words(totals))
    with ctx.fenced() as tx:
        corpora.grows(tx.connection, ctx.job_id, is_growing=False)
        tx.weigh(0.0)  # the work is in the files
        tx.finish(dict(sorted(totals.items())))


def _begin(tx: Any, job_id: int, corpus: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    corpora.grows(tx.connection, job_id, is_growing=True)
    owner = owners.by_id(tx.connection, tx.owner_id)
    found = corpora.named(tx.connection, owner.tenant, corpus, now=tx.now) if corpus else None
    pipeline = Pipeline().merged({**(found.settings if found else {}), **given})
    plugged.require(pipeline.parser)
    return {
        "corpus_id": found.id if found else None,
        "pipeline": asdict(pipeline),
        "at": tx.now.wall,
    }


def _list(
    ctx: Any,
    at: int,
    url: str,
    began: Mapping[str, Any],
    *,
    force: bool,
    options: Mapping[str, Any],
) -> Counter[str]:
    """List one source; pages that an earlier try has stored are not listed again."""
    totals: Counter[str] = Counter()
    left_out: list[str] = []
    number, cursor = 0, None
    while (stored := ctx.recall(f"list {at}.{number}"))[0]:
        totals.update(stored[1]["counts"])
        left_out += stored[1]["left_out"]
        cursor = stored[1]["cursor"]
        number += 1
    source = place.source_of(ctx.settings, url, options)
    for page in source.pages(cursor):
        ctx.check()
        batch = _Batch(ctx, url, began, force, options)
        made = ctx.step(f"list {at}.{number}", lambda tx, b=batch, p=page: b.store(tx, p))
        totals.update(made["counts"])
        left_out += made["left_out"]
        ctx.progress(None, _words(totals))
        number += 1
    if not options.get("include") and not options.get("exclude"):
        totals.update(ctx.step(f"gone {at}", lambda tx: _gone(tx, url, began, left_out)))
    return totals


class _Batch:
    """One page of a listing on its way into the database."""

    def __init__(
        self, ctx: Any, url: str, began: Mapping[str, Any], force: bool, options: Mapping[str, Any]
    ) -> None:
        self.job_id = ctx.job_id
        self.url = url
        self.began = began
        self.force = force
        self.options = options

    def store(self, tx: Any, page: Listed) -> dict[str, Any]:
        """Note the items and queue those that are to be indexed; returns cursor and counts."""
        wish = admit.Wish(
            owner=owners.by_id(tx.connection, tx.owner_id),
            job_id=self.job_id,
            source=self.url,
            settings=admit.canonical(dict(self.began["pipeline"])),
            corpus_ids=(self.began["corpus_id"],) if self.began["corpus_id"] else (),
            is_forced=self.force,
        )
        items = list({item.uri: item for item in page.items}.values())
        sightings = [admit.Sighting(i.uri, i.name, seen(i), i.folder) for i in items]
        admitted = admit.admit(tx.connection, wish, sightings, now=tx.now)
        for item, one in zip(items, admitted, strict=True):
            if one.is_taken:
                spawn_document(tx, one, self.payload(item))
        counts = Counter(one.why for one in admitted)
        counts["left_out"] += len(page.skipped)
        left_out = [each.uri for each in page.skipped]
        return {"cursor": page.cursor, "counts": dict(counts), "left_out": left_out}

    def payload(self, item: Item) -> dict[str, Any]:
        """Word what the document's task needs to fetch the item."""
        told = {k: v for k, v in item._asdict().items() if v is not None}
        return {"source": self.url, "options": dict(self.options), "item": told}


def spawn_document(tx: Any, one: admit.Admitted, payload: Mapping[str, Any]) -> None:
    """Queue a document's first task."""
    tx.spawn(
        "ingest.document",
        {"document": one.document_id, **payload},
        about=About(one.document_id, one.generation, exclusive_key=f"document {one.document_id}"),
    )


def _gone(tx: Any, url: str, began: Mapping[str, Any], left_out: Sequence[str]) -> dict[str, int]:
    """Mark what is not listed any more; of what could not be looked into nothing is known."""
    owner = owners.by_id(tx.connection, tx.owner_id)
    count, missing = admit.gone(
        tx.connection, owner.tenant, url,
        listed_before=began["at"], except_below=left_out, now=tx.now,
    )  # fmt: skip
    if began["pipeline"]["propagate_deletions"]:
        # Those too that something worked on when they were first missed.
        corpora.delete_documents(tx.connection, owner.tenant, missing, now=tx.now)
    return {"gone": count}


def _words(totals: Mapping[str, int]) -> str:
    return "listed: " + (
        ", ".join(f"{count:,} {why}" for why, count in sorted(totals.items()) if count) or "nothing"
    )
