"""What several stages share: sources, embedders and the reader of files; the task of a document."""

import atexit
import faulthandler
import functools
import hashlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from quire.errors import Forbidden
from quire.model.places import BUCKETS, Type, granted_hosts
from quire.model.records import LOCAL, About
from quire.url_secrets import masked

if TYPE_CHECKING:
    from quire.fetch.items import Source
    from quire.model.context import TaskContext
    from quire.model.pipeline import Pipeline
    from quire.parse.boxed_reader import Reader
    from quire.sandbox.box import BoxDied, Sandbox
    from quire.store import Transaction
    from quire.store.access.secrets import Sealer
    from quire.store.documents.admission import Admitted
    from quire.text.embed.embedder import Embedder
    from quire.text.rerank.reranker import Reranker

#: Seconds between two reports of a waiting task, far below the stall timeout.
REPORT_INTERVAL = 20.0


def source_for(ctx: "TaskContext", url: str, given: Mapping[str, Any]) -> "Source":
    """Open the source of a task, if whoever submitted its job may still use it.

    This is the one place where the password or signature of a URL is unsealed.
    """
    from quire.store.access import source_grants

    say = functools.partial(ctx.progress, None)
    url = unsealed(ctx, url)
    if ctx.origin == LOCAL:
        return source_of(ctx.settings, url, given, say)
    with ctx.database.read() as conn:
        grants = source_grants.of_job(conn, ctx.job_id)
    try:
        return source_of(ctx.settings, url, given, say, grants=grants)
    except Forbidden as error:
        _note_refusal(ctx, error)
        raise


def _note_refusal(ctx: "TaskContext", error: Forbidden) -> None:
    """Write a source that the worker refuses into the audit of the job's tenant."""
    from quire.store import Transaction
    from quire.store.access import audit
    from quire.store.queue import owners

    subject, _, reason = masked(str(error)).partition(": ")

    def act(tx: Transaction) -> None:
        whose = owners.by_id(tx.connection, tx.owner_id)
        reasons = f"job {ctx.job_id}: {reason}"
        refusal = audit.Refusal(whose.tenant, whose.user, "source.refused", subject, reasons, None)
        audit.record_refusal(tx.connection, refusal, now=tx.now)

    ctx.write(act)


def unsealed(ctx: "TaskContext", value: Any) -> Any:
    """Return a JSON value of a task with the secrets of its tenant in place of their marks."""
    from quire import secret_key
    from quire.store.access import secrets

    if not (tags := secrets.tags_in(value)):
        return value
    with ctx.database.read() as conn:
        since = ctx.database.now(conn).wall - secrets.DAY
        tenant = secrets.tenant_of_job(conn, ctx.job_id)
        found = secrets.opened(conn, secret_key.load(ctx.settings), tenant, value)
        is_fresh = secrets.are_fresh(conn, tenant, tags, since=since)
    if not is_fresh:
        ctx.write(lambda tx: secrets.touch(tx.connection, tenant, tags, used_at=tx.now.wall))
    return found


def sealer(ctx: "TaskContext") -> "Sealer":
    """Return what seals the secrets of the URLs that a source lists."""
    from quire import secret_key
    from quire.store.access import secrets

    with ctx.database.read() as conn:
        tenant = secrets.tenant_of_job(conn, ctx.job_id)
    return secrets.sealer(ctx.database, secret_key.load(ctx.settings), tenant)


def source_of(
    settings: Mapping[str, Any],
    url: str,
    given: Mapping[str, Any],
    say: Callable[[str], None] = lambda _: None,
    *,
    grants: Sequence[str] | None = None,
) -> "Source":
    """Open the source that a job names, with its options.

    `grants` are the places that the tenant of a user of the API may use; None is the operator.
    """
    from quire.fetch import permission
    from quire.fetch.items import SourceOptions
    from quire.fetch.source_credentials import access_of
    from quire.fetch.sources.registry import open_source

    # From the settings only: a job must not choose where the operator's token is sent.
    is_bucket = url.partition("://")[0].lower() in BUCKETS
    by_api = grants is not None
    is_private_allowed = bool(settings.get("fetch_allow_private_addresses"))
    roots, hosts = None, frozenset[str]()
    if grants is not None:
        place = permission.require_grant(url, grants, settings)
        if place.type is Type.HOST:
            # A member may not reach what the operator allowed for their own jobs.
            is_private_allowed, hosts = False, granted_hosts(grants)
        roots = permission.roots(grants)
    elif is_bucket:
        permission.refuse_blobs(url, settings)
    credentials, endpoint = settings.get("gdrive_credentials"), settings.get("gdrive_endpoint")
    bucket_credentials = None
    if is_bucket:
        credentials = None
        bucket_credentials, endpoint = access_of(url.partition("://")[0].lower(), settings)
    options = SourceOptions(
        include=tuple(given.get("include") or ()),
        exclude=tuple(given.get("exclude") or ()),
        hidden=bool(given.get("hidden")),
        follow_links=bool(given.get("follow_links")) and not by_api,
        credentials=Path(credentials) if credentials else None,
        bucket_credentials=bucket_credentials,
        endpoint=str(endpoint or ""),
        allow_private=is_private_allowed,
        allow_hosts=hosts,
        forbidden=permission.forbidden(settings, by_api=by_api),
        roots=roots,
        is_discreet=by_api,
        max_bytes=int(settings.get("fetch_max_bytes") or 4 << 30),
        say=say,
    )
    return open_source(url, options)


def embedder_of(settings: Mapping[str, Any], pipeline: "Pipeline") -> "Embedder":
    """Open the embedder that a corpus names."""
    from quire.text.embed.embedder import open_embedder

    if not pipeline.embedder.startswith("openai:"):
        return open_embedder(pipeline.embedder)
    url = str(settings.get("embed_url") or "")
    requests = float(settings.get("embed_requests_per_minute") or 0)
    tokens = float(settings.get("embed_tokens_per_minute") or 0)
    home = Path(settings["home"])
    # All processes of a home share the rate limit; its folder is not created just for that.
    is_shared = bool(requests or tokens) and home.is_dir()
    name = hashlib.blake2b(url.encode(), digest_size=6).hexdigest()
    return open_embedder(
        pipeline.embedder,
        url=url,
        key=str(settings.get("embed_api_key") or ""),
        dimensions=int(settings.get("embed_dimensions") or 0),
        requests_per_minute=requests,
        tokens_per_minute=tokens,
        shared=home / f"embed-{name}.ratelimit" if is_shared else None,
    )


def reranker_of(settings: Mapping[str, Any]) -> "Reranker | None":
    """Open the reranker that the settings name, if any."""
    from quire.text.rerank.reranker import open_reranker

    names = ("rerank_url", "rerank_model", "rerank_key")
    return open_reranker(*(str(settings.get(name) or "") for name in names))


def reader(ctx: "TaskContext", tenant: str) -> "Reader":
    """Return what reads the files of a tenant: a box, unless the operator switched it off."""
    from quire.parse.boxed_reader import BoxedReader, PlainReader

    settings = ctx.settings
    if settings.get("sandbox") == "off":
        return PlainReader()
    if scratch := settings.get("scratch"):
        return BoxedReader(_sandbox(Path(scratch)), tenant, _end_likewise)
    return BoxedReader(_sandbox(Path(settings["home"], "scratch")), tenant, _fail)


#: By process, because a fork has none yet, and by thread, because a box serves one at a time.
_SANDBOXES: dict[tuple[int, int], "Sandbox"] = {}


def _sandbox(scratch: Path) -> "Sandbox":
    from quire.parse.boxed_reader import SERVER
    from quire.sandbox.box import Sandbox

    pid, thread = user = os.getpid(), threading.get_ident()
    # The worker removes `box-PID` of a child that died, which works in its main thread.
    is_main = threading.current_thread() is threading.main_thread()
    folder = scratch / (f"box-{pid}" if is_main else f"box-{pid}-{thread}")
    if user not in _SANDBOXES:
        _SANDBOXES[user] = Sandbox(SERVER, folder)
        atexit.register(_SANDBOXES[user].close)
    _SANDBOXES[user].use(folder)
    return _SANDBOXES[user]


def _fail(died: "BoxDied") -> NoReturn:
    """Fail the task alone: this process is no child of a worker, it runs tasks itself."""
    raise died


def _end_likewise(died: "BoxDied") -> NoReturn:
    """End this process as its box ended: the worker then isolates the page that did it."""
    print(f"box: {died}", *getattr(died, "__notes__", ()), file=sys.stderr, flush=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the reason is in the box, not here
    if died.code < 0:
        faulthandler.disable()
        if -died.code != signal.SIGKILL:
            signal.signal(-died.code, signal.SIG_DFL)
        os.kill(os.getpid(), -died.code)
    os._exit(died.code or 1)


class Waiting:
    """Called while a task waits for an endpoint: checks for a stop and reports progress."""

    def __init__(self, ctx: "TaskContext", clock: Callable[[], float] = time.monotonic) -> None:
        self._ctx, self._clock = ctx, clock
        self._reported: str | None = None
        self._reported_at = -REPORT_INTERVAL

    def __call__(self, reason: str | None) -> None:
        """Report a reason only once: each message is an event."""
        self._ctx.check()
        now = self._clock()
        if reason is not None and reason != self._reported:
            self._reported, self._reported_at = reason, now
            self._ctx.progress(None, reason)
        elif now >= self._reported_at + REPORT_INTERVAL:
            self._reported_at = now
            self._ctx.progress(None, None)


def embedder_with_dimensions(ctx: "TaskContext", pipeline: "Pipeline") -> "Embedder":
    """Open the embedder that a corpus names; ask an endpoint for its dimensions if needed."""
    from quire.store.search import vectors
    from quire.text.embed.openai import OpenAIEmbedder

    found = embedder_of(ctx.settings, pipeline)
    if isinstance(found, OpenAIEmbedder) and not found.dimensions:
        with ctx.database.read() as conn:
            found.dimensions = vectors.dimensions_of(conn, found.name)
        found.detect_dimensions(Waiting(ctx))
    return found


def spawn_document(tx: "Transaction", one: "Admitted", payload: Mapping[str, Any]) -> None:
    """Queue the task of a document."""
    tx.spawn(
        "ingest.document",
        {"document": one.document_id, **payload},
        about=About.whole(one.document_id, one.generation),
    )
