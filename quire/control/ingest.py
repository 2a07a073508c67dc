"""Ingest requests: validation before a job is submitted, and a preview of what it would do."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from quire.control import secrets
from quire.control.caller import Caller
from quire.errors import BadInput, SourceRefused
from quire.model import admission
from quire.model.pipeline import Pipeline, parsed
from quire.model.records import DEFAULT_PRIORITY, Submission
from quire.parse import plugin_parser
from quire.store.documents import admission as admit
from quire.store.documents import corpora
from quire.store.reports import documents as reports
from quire.url_secrets import masked

#: What a preview shows for each reason code; "again" for all others.
_VERDICTS = {
    "new": "new", "changed": "changed", "settings": "changed", "unchanged": "same",
    "waiting": "busy", "running": "busy", "failed_before": "failed",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """Sources to ingest, and how."""

    sources: tuple[str, ...]
    corpus: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    force: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    retry_failed: bool = False

    def submission(self, priority: int = DEFAULT_PRIORITY) -> Submission:
        """Return the job to submit."""
        payload = {**asdict(self), "sources": list(self.sources)}
        if not self.retry_failed:
            del payload["retry_failed"]  # unknown to workers of older versions
        return Submission("ingest", payload, priority)


class PreviewItem(NamedTuple):
    """What an ingest would do with one file.

    The verdict is one of: new, changed, again, same, busy, failed, gone, left out.
    """

    verdict: str
    uri: str
    name: str
    why: str
    size: int | None = None
    document_id: int | None = None


def check_request(
    sources: Sequence[str],
    source_settings: Mapping[str, Any],
    *,
    corpus: str | None = None,
    settings: Mapping[str, Any] | None = None,
    force: bool = False,
    retry_failed: bool = False,
    options: Mapping[str, Any] | None = None,
) -> IngestRequest:
    """Validate a request; `source_settings` are the settings that concern sources."""
    if not sources:
        raise BadInput("ingest: no source given. Name a file, a folder or a URL.")
    plugin_parser.require(Pipeline().merged(settings or {}).parser)
    plain = dict(options or {})
    _check_patterns(plain)
    absolute = tuple(
        dict.fromkeys(absolute_source(each, source_settings, plain) for each in sources)
    )
    return IngestRequest(absolute, corpus, parsed(settings or {}), force, plain, retry_failed)


def _check_patterns(options: Mapping[str, Any]) -> None:
    """Refuse patterns that cannot match, even if the source ignores patterns."""
    from quire.fetch.sources.globs import path_filter, validate_pattern

    include, exclude = options.get("include") or (), options.get("exclude") or ()
    for pattern in filter(None, (*include, *exclude)):
        validate_pattern(pattern)
    path_filter(include, exclude)


def absolute_source(
    text: str, source_settings: Mapping[str, Any], options: Mapping[str, Any]
) -> str:
    """Return a source as an absolute path or URL; refuse a path that does not exist."""
    from quire.fetch.names import file_path, file_uri
    from quire.fetch.sources.folder import FolderSource
    from quire.ingest import resources

    source = resources.source_of(source_settings, text, options)
    if not isinstance(source, FolderSource):
        return text
    is_url = text.lower().startswith("file://")
    named = file_path("file://" + text[7:]) if is_url else Path(text).expanduser()
    whole = os.path.abspath(named)  # noqa: PTH100  keeps symbolic links
    _require_exists(Path(whole), text)
    return whole if whole.isprintable() else file_uri(whole)


def _require_exists(path: Path, text: str) -> None:
    from quire.fetch.sources.globs import is_glob

    if path.exists() or path.is_symlink():
        return
    if is_glob(str(path)):
        parts = path.parts
        first = next(at for at, each in enumerate(parts) if is_glob(each))
        path = Path(*parts[:first])
        if path.is_dir():
            return
    raise BadInput(f"{text}: there is no such file or folder. Check the path.")


def preview(
    caller: Caller | None, source_settings: Mapping[str, Any], request: IngestRequest
) -> Iterator[PreviewItem]:
    """Yield what an ingest would do, from the listing alone; nothing is written or fetched.

    Without a caller there is no database yet, and every file is new.
    """
    defaults: Mapping[str, Any] = {}
    if caller is not None and request.corpus:
        with caller.db.read() as conn:
            found = corpora.find(conn, caller.tenant, request.corpus)
        defaults = found.settings if found else {}
    pipeline = Pipeline().merged({**defaults, **request.settings})
    settings = admit.canonical_json(asdict(pipeline))
    for url in request.sources:
        yield from _preview_source(caller, source_settings, request, url, settings)


def _preview_source(
    caller: Caller | None,
    source_settings: Mapping[str, Any],
    request: IngestRequest,
    url: str,
    settings: str,
) -> Iterator[PreviewItem]:
    from quire.fetch.items import fingerprint
    from quire.ingest import resources

    identity = secrets.identity_of(caller)
    listed: set[str] = set()
    for page in resources.source_of(source_settings, url, request.options).pages(None):
        known: dict[str, admission.KnownDocument] = {}
        if caller is not None:
            with caller.db.read() as conn:
                now = caller.db.now(conn)
                uris = [identity(item.uri) for item in page.items]
                known = admit.known_documents(conn, caller.tenant, uris, lock=False)
        for item in page.items:
            uri = identity(item.uri)
            listed.add(uri)
            found = known.get(uri)
            why = "new"
            if found is not None:
                why = admit.decide_for(
                    settings,
                    found,
                    fingerprint(item),
                    is_forced=request.force,
                    retry_failed=request.retry_failed,
                    now=now,
                ).why
            verdict = _VERDICTS.get(why, "again")
            number = found.id if found else None
            yield PreviewItem(
                verdict, masked(item.uri), item.name, admission.reason_text(why), item.size, number
            )
        for skipped in page.skipped:
            shown = masked(skipped.uri)
            yield PreviewItem("left out", shown, shown, masked(skipped.reason))
    if caller is not None and not (
        request.options.get("include") or request.options.get("exclude")
    ):
        yield from _missing(caller, identity(url), listed)


def _missing(caller: Caller, url: str, listed: set[str]) -> Iterator[PreviewItem]:
    last = 0
    while True:
        with caller.db.read() as conn:
            some = reports.listed_at_source(conn, caller.tenant, url, after_id=last)
        for document_id, uri, name in some:
            if uri not in listed:
                why = "the source no longer lists it"
                yield PreviewItem("gone", masked(uri), name, why, None, document_id)
        if not some:
            return
        last = some[-1][0]


def counts_text(verdicts: Mapping[str, int]) -> str:
    """Word how many files have each verdict."""
    order = ("new", "changed", "again", "same", "busy", "failed", "gone", "left out")
    found = Counter(verdicts)
    return ", ".join(f"{found[word]:,} {word}" for word in order if found[word]) or "nothing"


def check_source(text: str, source_settings: Mapping[str, Any]) -> tuple[bool, list[str]]:
    """Tell whether a source can be listed, with details as sentences."""
    from quire.errors import QuireError
    from quire.ingest import resources

    url = absolute_source(text, source_settings, {})
    source = resources.source_of(source_settings, url, {})
    try:
        next(iter(source.pages(None)), None)
    except QuireError as error:
        return False, [str(error)]
    except OSError as error:
        raise SourceRefused(f"{text}: cannot be listed ({error}).") from error
    return True, source.doctor()
