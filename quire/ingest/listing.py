"""Listing: list sources page by page and queue the files that are new or have changed.

Each page is admitted in one transaction, together with the cursor: a listing that was killed
resumes after the last stored page. Files are compared by what the source reports, before any byte
is fetched. A source that cannot be listed does not hold up the others; it is reported at the end.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.errors import DatabaseUnavailable, LeaseLost, Permanent, QuireError, Stopped, Transient
from quire.fetch.items import Item, ListingPage, fingerprint
from quire.fetch.sources.globs import matcher
from quire.ingest import resources
from quire.model.admission import failed_sources_text
from quire.model.context import TaskContext
from quire.model.pipeline import Pipeline
from quire.parse import plugin_parser
from quire.store import Transaction
from quire.store.documents import admission, corpora
from quire.store.queue import owners
from quire.url_secrets import identity, masked, secrets_of

if TYPE_CHECKING:
    from quire.store.access.secrets import Sealer

#: Skipped files that the result of the job names.
NAMED_SKIPPED = 5
#: Errors that are not the fault of the source.
_NOT_OF_THE_SOURCE = (Stopped, LeaseLost, DatabaseUnavailable)


class _Request(NamedTuple):
    """What applies to every source of the job."""

    job_id: int
    pipeline: dict[str, Any]
    corpus_id: int | None
    started_at: float
    force: bool
    retry_failed: bool
    options: Mapping[str, Any]
    round: int  # counts how often a person has retried the listing


class _CannotList(Exception):
    """A source could not be listed."""

    def __init__(
        self, source: str, error: str, *, is_final: bool = True, retry_after: float | None = None
    ) -> None:
        super().__init__(error)
        self.source, self.is_final, self.retry_after = source, is_final, retry_after


@dataclass
class _Summary:
    """What a listing has found so far."""

    counts: Counter[str] = field(default_factory=Counter)  # by reason code
    named: list[dict[str, str]] = field(default_factory=list)  # the first left out, with reasons
    matched: set[str] = field(default_factory=set)  # include patterns that matched a file

    def add_page(self, stored: Mapping[str, Any]) -> None:
        """Add a page, as its step has stored it."""
        self.counts.update(stored["counts"])
        self.named += stored.get("named", ())  # missing in steps of older versions
        self.matched.update(stored.get("matched", ()))

    def result(self, failed: Sequence[_CannotList], include: Sequence[str]) -> dict[str, Any]:
        """Return the result of the job, without what is empty."""
        more = {
            "unlisted": [{"source": each.source, "error": str(each)} for each in failed],
            "left_out_first": self.named[:NAMED_SKIPPED],
            "unmatched": [] if failed else [each for each in include if each not in self.matched],
        }
        return {k: v for k, v in [*sorted(self.counts.items()), *more.items()] if v}


def run(
    ctx: TaskContext,
    sources: Sequence[str],
    corpus: str | None = None,
    settings: Mapping[str, Any] | None = None,
    force: bool = False,
    retry_failed: bool = False,
    options: Mapping[str, Any] | None = None,
    uploads: Sequence[Mapping[str, Any]] = (),
    outdated: bool = False,
) -> None:
    """List every source of a job, or queue what is outdated in a corpus.

    `uploads` are for the record: their documents were queued when the job was submitted.
    """
    is_resumed, begun = ctx.recall("begin")
    if not is_resumed:
        begun = ctx.step("begin", lambda tx: _begin(tx, ctx.job_id, corpus, settings or {}))
    request = _Request(
        ctx.job_id, begun["pipeline"], begun["corpus_id"], begun["at"], force, retry_failed,
        options or {},
        _round(ctx) if is_resumed else 0,
    )  # fmt: skip
    summary = _Summary()
    failed: list[_CannotList] = []
    if outdated:
        summary.counts.update(_queue_outdated(ctx, request))
    for at, url in enumerate(sources):
        try:
            _list_source(ctx, at, url, request, summary)
        except _CannotList as error:
            failed.append(error)
        ctx.progress(None, _progress_text(summary.counts, failed, len(sources)))
    _finish(ctx, summary, failed, sources, request)


def _begin(
    tx: Transaction, job_id: int, corpus: str | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    owner = owners.by_id(tx.connection, tx.owner_id)
    found = None
    if corpus:
        found = corpora.get_or_create(tx.connection, owner.tenant, corpus, now=tx.now)
    pipeline = Pipeline().merged({**(found.settings if found else {}), **given})
    plugin_parser.require(pipeline.parser)
    corpora.set_growing(tx.connection, job_id, is_growing=True)  # last: it locks the job
    return {
        "corpus_id": found.id if found else None,
        "pipeline": asdict(pipeline),
        "at": tx.now.wall,
    }


def _queue_outdated(ctx: TaskContext, request: _Request) -> Counter[str]:
    from quire.ingest import outdated

    settings = admission.canonical_json(request.pipeline)
    return outdated.queue(ctx, request.corpus_id or 0, settings)


def _round(ctx: TaskContext) -> int:
    """Return which round of attempts this is: a person's retry of a failed job starts a new one.

    Within a round, a source that refused is not asked again because another source is retried.
    """
    number = 0
    while ctx.recall(f"round {number + 1}")[0]:
        number += 1
    if ctx.attempt > 1:
        return number

    def begin(tx: Transaction) -> None:
        corpora.set_growing(tx.connection, ctx.job_id, is_growing=True)

    ctx.step(f"round {number + 1}", begin)
    return number + 1


def _list_source(ctx: TaskContext, at: int, url: str, request: _Request, summary: _Summary) -> None:
    """List one source, unless it has already refused in this round."""
    refusal = f"refused {at} in {request.round}"
    is_refused, reason = ctx.recall(refusal)
    if is_refused:
        raise _CannotList(url, reason)
    try:
        _list_pages(ctx, at, url, request, summary)
    except _CannotList as error:
        if error.is_final:
            text = str(error)
            ctx.step(refusal, lambda: text)
        raise


def _list_pages(ctx: TaskContext, at: int, url: str, request: _Request, summary: _Summary) -> None:
    """Admit the pages of a listing that no earlier attempt has stored."""
    number, cursor = 0, None
    left_out: list[str] = []
    while True:
        is_stored, stored = ctx.recall(f"list {at}.{number}")
        if not is_stored:
            break
        summary.add_page(stored)
        left_out += stored["left_out"]
        cursor = stored["cursor"]
        number += 1
    source = identity(url)
    is_complete, missing = ctx.recall(f"gone {at}")
    if not is_complete:
        for page in _fetch_pages(ctx, url, request, cursor):
            ctx.check()
            sealer = resources.sealer(ctx) if _has_secret(page) else None
            admit = partial(_admit_page, url=url, request=request, page=page, sealer=sealer)
            stored = ctx.step(f"list {at}.{number}", admit)
            summary.add_page(stored)
            left_out += stored["left_out"]
            ctx.progress(None, _progress_text(summary.counts))
            number += 1
        missing = ctx.step(f"gone {at}", lambda tx: _mark_missing(tx, source, request, left_out))
    summary.counts.update(missing)


def _fetch_pages(
    ctx: TaskContext, url: str, request: _Request, cursor: str | None
) -> Iterator[ListingPage]:
    """Yield the pages after a cursor; raise `_CannotList` for the errors of the source."""
    try:
        after = resources.unsealed(ctx, cursor)
        yield from resources.source_for(ctx, url, request.options).pages(after)
    except _NOT_OF_THE_SOURCE:
        raise
    except Exception as error:
        raise _CannotList(
            url,
            _error_text(url, error),
            is_final=isinstance(error, Permanent),
            retry_after=getattr(error, "retry_after", None),
        ) from error


def _error_text(url: str, error: Exception) -> str:
    """Word an error of a source; the query of a URL is left out, since it may be secret."""
    from quire.fetch.http_client import redact_url

    is_ours = isinstance(error, QuireError) and str(error)
    text = masked(str(error) if is_ours else f"{type(error).__name__}: {error}")
    name = masked(redact_url(url) if "://" in url else url)
    return text if text.startswith(name) else f"{name}: {text}"


def _has_secret(page: ListingPage) -> bool:
    texts = itertools.chain((i.uri for i in page.items), (s.uri for s in page.skipped))
    return any(secrets_of(each) for each in (*texts, page.cursor) if "://" in each)


def _admit_page(
    tx: Transaction, *, url: str, request: _Request, page: ListingPage, sealer: "Sealer | None"
) -> dict[str, Any]:
    """Record the files of a page and queue those to be indexed; return cursor and counts."""
    seal = sealer.seal if sealer else str
    sealed = [item._replace(uri=seal(item.uri)) for item in page.items] if sealer else page.items
    items = list({identity(item.uri): item for item in sealed}.values())
    admitted = admission.admit(
        tx.connection,
        admission.AdmissionRequest(
            owner=owners.by_id(tx.connection, tx.owner_id),
            job_id=request.job_id,
            source=identity(url),
            settings=admission.canonical_json(request.pipeline),
            corpus_ids=(request.corpus_id,) if request.corpus_id else (),
            is_forced=request.force,
            retry_failed=request.retry_failed,
        ),
        [admission.ListedFile(identity(i.uri), i.name, fingerprint(i), i.folder) for i in items],
        now=tx.now,
    )
    for item, one in zip(items, admitted, strict=True):
        if one.should_index:
            fields = {k: v for k, v in item._asdict().items() if v is not None}
            payload = {"source": url, "options": dict(request.options), "item": fields}
            resources.spawn_document(tx, one, payload)
    if sealer is not None:
        sealer.store(tx.connection, used_at=tx.now.wall)
    counts = Counter(one.why for one in admitted)
    counts["left_out"] += len(page.skipped)
    return {
        "cursor": seal(page.cursor),
        "counts": dict(counts),
        "left_out": [identity(seal(each.uri)) for each in page.skipped],
        "named": [
            {"uri": masked(each.uri), "reason": masked(each.reason)}
            for each in page.skipped[:NAMED_SKIPPED]
        ],
        "matched": _matched_patterns(request, items),
    }


def _matched_patterns(request: _Request, items: Sequence[Item]) -> list[str]:
    """Return the include patterns that match at least one of the files."""
    paths = [f"{item.folder}/{item.name}" if item.folder else item.name for item in items]
    patterns = [each for each in request.options.get("include") or () if each]
    matchers = {each: matcher([each]) for each in patterns}
    return [each for each, matches in matchers.items() if matches and any(map(matches, paths))]


def _mark_missing(
    tx: Transaction, url: str, request: _Request, left_out: Sequence[str]
) -> dict[str, int]:
    """Mark documents that the source no longer lists; delete them if the corpus wants that."""
    if request.options.get("include") or request.options.get("exclude"):
        return {}
    owner = owners.by_id(tx.connection, tx.owner_id)
    count, missing = admission.mark_missing(
        tx.connection, owner.tenant, url,
        listed_before=request.started_at, except_below=left_out, now=tx.now,
    )  # fmt: skip
    if request.pipeline["propagate_deletions"]:
        # Including those that were busy when they were first missed.
        corpora.delete_documents(tx.connection, owner.tenant, missing, now=tx.now)
    return {"gone": count}


def _finish(
    ctx: TaskContext,
    summary: _Summary,
    failed: Sequence[_CannotList],
    sources: Sequence[str],
    request: _Request,
) -> None:
    """End the task, or raise `Transient` for the sources that may answer later."""
    reason = failed_sources_text(list(map(str, failed)), len(sources))
    later = [each for each in failed if not each.is_final]
    if later and ctx.attempt < ctx.max_attempts:
        waits = [each.retry_after for each in later if each.retry_after is not None]
        raise Transient(reason, retry_after=max(waits, default=None))
    include = request.options.get("include") or () if sources else ()
    with ctx.fenced() as tx:
        corpora.set_growing(tx.connection, ctx.job_id, is_growing=False)
        tx.weigh(0.0)  # the work is in the files
        tx.finish(summary.result(failed, include))
        if failed:
            tx.fail(reason)


def _progress_text(
    counts: Mapping[str, int], failed: Sequence[_CannotList] = (), total: int = 0
) -> str:
    found = ", ".join(f"{count:,} {why}" for why, count in sorted(counts.items()) if count)
    failure = f"; {failed_sources_text(list(map(str, failed)), total)}" if failed else ""
    return f"listed: {found or 'nothing'}{failure}"
