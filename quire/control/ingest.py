"""The request to ingest: sources checked and made absolute, and a look at what it would do."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from quire.control.caller import Caller
from quire.errors import BadInput, SourceRefused
from quire.model import admission
from quire.model.pipeline import Pipeline, parsed
from quire.model.records import DEFAULT_PRIORITY, Submission
from quire.parse import plugin_parser
from quire.store.documents import admission as admit
from quire.store.documents import corpora
from quire.store.reports import documents as reports

#: What a reason code means to who looks before ingesting.
VERDICTS = {
    "new": "new", "changed": "changed", "settings": "changed", "unchanged": "same",
    "waiting": "busy", "running": "busy",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Order:
    """What a person asks to be ingested, and how."""

    sources: tuple[str, ...]
    corpus: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    force: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def submission(self, priority: int = DEFAULT_PRIORITY) -> Submission:
        """Return the job that carries it out."""
        return Submission("ingest", {**asdict(self), "sources": list(self.sources)}, priority)


class Judged(NamedTuple):
    """What an ingest would do with one item: new, changed, again, same, busy, gone, left out."""

    verdict: str
    uri: str
    name: str
    why: str
    size: int | None = None
    document_id: int | None = None


def checked(
    sources: Sequence[str],
    reach: Mapping[str, Any],
    *,
    corpus: str | None = None,
    settings: Mapping[str, Any] | None = None,
    force: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Order:
    """Check a request before anything is stored; `reach` is what the settings say of sources."""
    if not sources:
        raise BadInput("ingest: which source? Name a file, a folder or a URL.")
    plugin_parser.require(Pipeline().merged(settings or {}).parser)
    plain = dict(options or {})
    _require_patterns(plain)
    absolute = tuple(dict.fromkeys(absolute_source(each, reach, plain) for each in sources))
    return Order(absolute, corpus, parsed(settings or {}), force, plain)


def _require_patterns(options: Mapping[str, Any]) -> None:
    """Refuse patterns that cannot match, also where the source would not look at them."""
    from quire.fetch.sources.globs import path_filter, validate_pattern

    include, exclude = options.get("include") or (), options.get("exclude") or ()
    for pattern in filter(None, (*include, *exclude)):
        validate_pattern(pattern)
    path_filter(include, exclude)


def absolute_source(text: str, reach: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return a source as a worker in another folder finds it, or refuse what cannot be one."""
    from quire.fetch.names import file_path, file_uri
    from quire.fetch.sources.folder import FolderSource
    from quire.ingest import resources

    source = resources.source_of(reach, text, options)
    if not isinstance(source, FolderSource):
        return text
    is_url = text.lower().startswith("file://")
    named = file_path("file://" + text[7:]) if is_url else Path(text).expanduser()
    whole = os.path.abspath(named)  # noqa: PTH100  links stay as they were named
    _require_there(Path(whole), text)
    return whole if whole.isprintable() else file_uri(whole)


def _require_there(path: Path, text: str) -> None:
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


def plan(caller: Caller | None, reach: Mapping[str, Any], order: Order) -> Iterator[Judged]:
    """Say what an ingest would do, from the listing alone; nothing is written or fetched.

    Without a caller there is no database yet, and everything is new.
    """
    settings = _wanted(caller, order)
    for url in order.sources:
        yield from _plan_one(caller, reach, order, url, settings)


def _plan_one(
    caller: Caller | None, reach: Mapping[str, Any], order: Order, url: str, settings: str
) -> Iterator[Judged]:
    from quire.fetch.items import fingerprint
    from quire.ingest import resources

    met: set[str] = set()
    for page in resources.source_of(reach, url, order.options).pages(None):
        known: dict[str, admission.KnownDocument] = {}
        if caller is not None:
            with caller.db.read() as conn:
                now = caller.db.now(conn)
                uris = [item.uri for item in page.items]
                known = admit.known_documents(conn, caller.tenant, uris, lock=False)
        for item in page.items:
            met.add(item.uri)
            found = known.get(item.uri)
            why = "new"
            if found is not None:
                why = admit.decide_for(
                    settings, found, fingerprint(item), is_forced=order.force, now=now
                ).why
            verdict = VERDICTS.get(why, "again")
            number = found.id if found else None
            yield Judged(
                verdict, item.uri, item.name, admission.reason_text(why), item.size, number
            )
        for left in page.skipped:
            yield Judged("left out", left.uri, left.uri, left.reason)
    if caller is not None and not (order.options.get("include") or order.options.get("exclude")):
        yield from _gone(caller, url, met)


def _gone(caller: Caller, url: str, met: set[str]) -> Iterator[Judged]:
    last = 0
    while True:
        with caller.db.read() as conn:
            some = reports.listed_at_source(conn, caller.tenant, url, after_id=last)
        for document_id, uri, name in some:
            if uri not in met:
                why = "its source does not list it any more"
                yield Judged("gone", uri, name, why, None, document_id)
        if not some:
            return
        last = some[-1][0]


def _wanted(caller: Caller | None, order: Order) -> str:
    found = None
    if caller is not None and order.corpus:
        with caller.db.read() as conn:
            found = corpora.find(conn, caller.tenant, order.corpus)
    told = found.settings if found else {}
    return admit.canonical_json(asdict(Pipeline().merged({**told, **order.settings})))


def counted(verdicts: Mapping[str, int]) -> str:
    """Write how many items of each kind there are."""
    order = ("new", "changed", "again", "same", "busy", "gone", "left out")
    found = Counter(verdicts)
    return ", ".join(f"{found[word]:,} {word}" for word in order if found[word]) or "nothing"


def examine_source(text: str, reach: Mapping[str, Any]) -> tuple[bool, list[str]]:
    """Say whether a source can be listed and read, and in sentences how it stands."""
    from quire.errors import QuireError
    from quire.ingest import resources

    url = absolute_source(text, reach, {})
    source = resources.source_of(reach, url, {})
    try:
        next(iter(source.pages(None)), None)
    except QuireError as error:
        return False, [str(error)]
    except OSError as error:
        raise SourceRefused(f"{text}: cannot be listed ({error}).") from error
    return True, source.doctor()
