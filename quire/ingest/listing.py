"""Lists sources page by page: each page is noted, judged and queued in one commit.

The cursor is stored with it, so that a crawl that was killed goes on where it was. What is new,
changed or unchanged is decided from what the source tells, before any byte is read. A source that
cannot be listed holds up no other: it is noted, and told when the others have been listed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from quire.errors import DatabaseUnavailable, LeaseLost, Permanent, QuireError, Stopped, Transient
from quire.fetch.items import Item, ListingPage, fingerprint
from quire.fetch.sources.globs import matcher
from quire.ingest import resources
from quire.model import unlisted
from quire.model.pipeline import Pipeline
from quire.model.records import About
from quire.parse import plugin_parser
from quire.store.documents import admission, corpora
from quire.store.queue import owners

#: Things left out that the job's result names.
NAMED = 5
#: What is no fault of the source that is being listed.
_NOT_ITS_OWN = (Stopped, LeaseLost, DatabaseUnavailable)


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
    is_again, began = ctx.recall("begin")
    if not is_again:
        began = ctx.step("begin", lambda tx: _begin(tx, ctx.job_id, corpus, settings or {}))
    order = _Order(began, force, options or {}, _round(ctx, is_again))
    found = _Found()
    failed: list[_Failure] = []
    for at, url in enumerate(sources):
        try:
            found.add(_listed(ctx, at, url, order))
        except _Unlisted as error:
            failed.append(error.failure)
        ctx.progress(None, _words(found.counts, failed, len(sources)))
    _end(ctx, found, failed, sources, order)


class _Order(NamedTuple):
    """What is asked of every source alike."""

    began: Mapping[str, Any]
    force: bool
    options: Mapping[str, Any]
    round: int  # 0 unless a person had the listing tried again


class _Failure(NamedTuple):
    """Why a source could not be listed."""

    source: str
    error: str
    is_final: bool = True
    retry_after: float | None = None


class _Unlisted(Exception):
    """A source cannot be listed, now or at all."""

    def __init__(self, failure: _Failure) -> None:
        super().__init__(failure.error)
        self.failure = failure


@dataclass
class _Found:
    """What a listing has found so far."""

    counts: Counter[str] = field(default_factory=Counter)
    left_out: list[str] = field(default_factory=list)
    #: The first of them, each with the reason.
    named: list[dict[str, str]] = field(default_factory=list)
    matched: set[str] = field(default_factory=set)

    def add(self, other: Self) -> None:
        """Take in what another part of the listing found."""
        self.counts.update(other.counts)
        self.left_out += other.left_out
        self.named += other.named
        self.matched |= other.matched

    def page(self, stored: Mapping[str, Any]) -> None:
        """Take in a page as its step has stored it."""
        self.counts.update(stored["counts"])
        self.left_out += stored["left_out"]
        self.named += stored.get("named", ())  # a step of an earlier Quire has none
        self.matched.update(stored.get("matched", ()))

    def result(self, failed: Sequence[_Failure], include: Sequence[str]) -> dict[str, Any]:
        """Word it as the job's result; what there is nothing of is left out."""
        more = {
            "unlisted": [{"source": each.source, "error": each.error} for each in failed],
            "left_out_first": self.named[:NAMED],
            "unmatched": [] if failed else [each for each in include if each not in self.matched],
        }
        return {k: v for k, v in [*sorted(self.counts.items()), *more.items()] if v}


def _begin(tx: Any, job_id: int, corpus: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    corpora.set_growing(tx.connection, job_id, is_growing=True)
    owner = owners.by_id(tx.connection, tx.owner_id)
    found = (
        corpora.get_or_create(tx.connection, owner.tenant, corpus, now=tx.now) if corpus else None
    )
    pipeline = Pipeline().merged({**(found.settings if found else {}), **given})
    plugin_parser.require(pipeline.parser)
    return {
        "corpus_id": found.id if found else None,
        "pipeline": asdict(pipeline),
        "at": tx.now.wall,
    }


def _round(ctx: Any, is_again: bool) -> int:
    """Number the tries that belong together: who has a failed listing tried again begins a new one.

    Within a round a source that was refused is not asked again because another one has to be.
    """
    if not is_again:
        return 0
    number = 0
    while ctx.recall(f"round {number + 1}")[0]:
        number += 1
    if ctx.attempt > 1:
        return number

    def begin(tx: Any) -> None:
        corpora.set_growing(tx.connection, ctx.job_id, is_growing=True)

    ctx.step(f"round {number + 1}", begin)
    return number + 1


def _listed(ctx: Any, at: int, url: str, order: _Order) -> _Found:
    """List one source; what an earlier try has stored of it is not listed again."""
    refusal = f"refused {at} in {order.round}"
    is_refused, why = ctx.recall(refusal)
    if is_refused:
        raise _Unlisted(_Failure(url, why))
    try:
        return _list(ctx, at, url, order)
    except _Unlisted as error:
        failure = error.failure
        if failure.is_final:
            ctx.step(refusal, lambda: failure.error)
        raise


def _list(ctx: Any, at: int, url: str, order: _Order) -> _Found:
    found = _Found()
    number, cursor = 0, None
    while (stored := ctx.recall(f"list {at}.{number}"))[0]:
        found.page(stored[1])
        cursor = stored[1]["cursor"]
        number += 1
    is_over, gone = ctx.recall(f"gone {at}")
    if not is_over:
        for page in _pages(ctx, url, order, cursor):
            ctx.check()
            batch = _Batch(ctx, url, order)
            found.page(ctx.step(f"list {at}.{number}", lambda tx, b=batch, p=page: b.store(tx, p)))
            ctx.progress(None, _words(found.counts))
            number += 1
        gone = ctx.step(f"gone {at}", lambda tx: _gone(tx, url, order, found.left_out))
    found.counts.update(gone)
    return found


def _pages(ctx: Any, url: str, order: _Order, cursor: str | None) -> Iterator[ListingPage]:
    """List a source behind a cursor; its own errors are caught here, not those of the store."""
    try:
        yield from resources.source_of(ctx.settings, url, order.options).pages(cursor)
    except _NOT_ITS_OWN:
        raise
    except Exception as error:
        retry_after = getattr(error, "retry_after", None)
        is_final = isinstance(error, Permanent)
        raise _Unlisted(_Failure(url, _reason(url, error), is_final, retry_after)) from error


def _reason(url: str, error: Exception) -> str:
    """Say what a source could not do; a URL is named without its query, which may be secret."""
    from quire.fetch.http_client import redact_url

    is_known = isinstance(error, QuireError) and str(error)
    why = str(error) if is_known else f"{type(error).__name__}: {error}"
    name = redact_url(url) if "://" in url else url
    return why if why.startswith(name) else f"{name}: {why}"


def _end(
    ctx: Any, found: _Found, failed: Sequence[_Failure], sources: Sequence[str], order: _Order
) -> None:
    """End the listing, or have it tried again for the sources that may answer later."""
    why = unlisted.words([each.error for each in failed], len(sources))
    later = [each for each in failed if not each.is_final]
    if later and ctx.attempt < ctx.max_attempts:
        waits = [each.retry_after for each in later if each.retry_after is not None]
        raise Transient(why, retry_after=max(waits, default=None))
    include = order.options.get("include") or () if sources else ()
    with ctx.fenced() as tx:
        corpora.set_growing(tx.connection, ctx.job_id, is_growing=False)
        tx.weigh(0.0)  # the work is in the files
        tx.finish(found.result(failed, include))
        if failed:
            tx.fail(why)


class _Batch:
    """One page of a listing on its way into the database."""

    def __init__(self, ctx: Any, url: str, order: _Order) -> None:
        self.job_id = ctx.job_id
        self.url = url
        self.order = order

    def store(self, tx: Any, page: ListingPage) -> dict[str, Any]:
        """Note the items and queue those that are to be indexed; returns cursor and counts."""
        began = self.order.began
        wish = admission.AdmissionRequest(
            owner=owners.by_id(tx.connection, tx.owner_id),
            job_id=self.job_id,
            source=self.url,
            settings=admission.canonical_json(dict(began["pipeline"])),
            corpus_ids=(began["corpus_id"],) if began["corpus_id"] else (),
            is_forced=self.order.force,
        )
        items = list({item.uri: item for item in page.items}.values())
        sightings = [admission.ListedFile(i.uri, i.name, fingerprint(i), i.folder) for i in items]
        admitted = admission.admit(tx.connection, wish, sightings, now=tx.now)
        for item, one in zip(items, admitted, strict=True):
            if one.is_taken:
                spawn_document(tx, one, self.payload(item))
        counts = Counter(one.why for one in admitted)
        counts["left_out"] += len(page.skipped)
        return {
            "cursor": page.cursor,
            "counts": dict(counts),
            "left_out": [each.uri for each in page.skipped],
            "named": [each._asdict() for each in page.skipped[:NAMED]],
            "matched": self.matched(items),
        }

    def matched(self, items: Sequence[Item]) -> list[str]:
        """List the patterns that chose some of the items."""
        paths = [f"{item.folder}/{item.name}" if item.folder else item.name for item in items]
        include = [each for each in self.order.options.get("include") or () if each]
        found = {each: matcher([each]) for each in include}
        return [name for name, fits in found.items() if fits and any(map(fits, paths))]

    def payload(self, item: Item) -> dict[str, Any]:
        """Word what the document's task needs to fetch the item."""
        told = {k: v for k, v in item._asdict().items() if v is not None}
        return {"source": self.url, "options": dict(self.order.options), "item": told}


def spawn_document(tx: Any, one: admission.Admitted, payload: Mapping[str, Any]) -> None:
    """Queue a document's first task."""
    tx.spawn(
        "ingest.document",
        {"document": one.document_id, **payload},
        about=About(one.document_id, one.generation, exclusive_key=f"document {one.document_id}"),
    )


def _gone(tx: Any, url: str, order: _Order, left_out: Sequence[str]) -> dict[str, int]:
    """Mark what is not listed any more; of what could not be looked into nothing is known."""
    if order.options.get("include") or order.options.get("exclude"):
        return {}
    owner = owners.by_id(tx.connection, tx.owner_id)
    count, missing = admission.mark_missing(
        tx.connection, owner.tenant, url,
        listed_before=order.began["at"], except_below=left_out, now=tx.now,
    )  # fmt: skip
    if order.began["pipeline"]["propagate_deletions"]:
        # Those too that something worked on when they were first missed.
        corpora.delete_documents(tx.connection, owner.tenant, missing, now=tx.now)
    return {"gone": count}


def _words(counts: Mapping[str, int], failed: Sequence[_Failure] = (), total: int = 0) -> str:
    told = ", ".join(f"{count:,} {why}" for why, count in sorted(counts.items()) if count)
    trouble = unlisted.words([each.error for each in failed], total) if failed else ""
    return f"listed: {told or 'nothing'}" + (f"; {trouble}" if trouble else "")
