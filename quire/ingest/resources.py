"""Opens the sources and embedders that jobs and corpora name, with the operator's settings."""

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quire.fetch.items import Source
    from quire.model.context import TaskContext
    from quire.model.pipeline import Pipeline
    from quire.text.embed.embedder import Embedder

#: Seconds between two reports of a waiting task, far below the stall timeout.
REPORT_INTERVAL = 20.0


def source_of(settings: Mapping[str, Any], url: str, given: Mapping[str, Any]) -> "Source":
    """Open the source that a job names, with its options."""
    from quire.fetch.items import SourceOptions
    from quire.fetch.sources.registry import BUCKETS, open_source

    # From the settings only: a job must not choose where the operator's token is sent.
    is_bucket = url.partition("://")[0].lower() in BUCKETS
    credentials = None if is_bucket else settings.get("gdrive_credentials")
    endpoint = settings.get("bucket_endpoint" if is_bucket else "gdrive_endpoint")
    options = SourceOptions(
        include=tuple(given.get("include") or ()),
        exclude=tuple(given.get("exclude") or ()),
        hidden=bool(given.get("hidden")),
        credentials=Path(credentials) if credentials else None,
        endpoint=str(endpoint or ""),
        allow_private=bool(settings.get("fetch_allow_private_addresses")),
        max_bytes=int(settings.get("fetch_max_bytes") or 4 << 30),
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
