"""Where a handler finds things: its blobs, the source of a file, the embedder."""

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.fetch.blobs.backend import open_blobs as blobs_of
from quire.fetch.blobs.backend import open_folder as blobs_in

if TYPE_CHECKING:
    from quire.fetch.items import Source
    from quire.model.pipeline import Pipeline
    from quire.text.embed.embedder import Embedder

__all__ = ["Waiting", "blobs_in", "blobs_of", "embedder_of", "settled_embedder", "source_of"]

#: Seconds between two reports of a task that waits: far below what is taken to be stuck.
TOLD_EVERY = 20.0


def source_of(settings: Mapping[str, Any], url: str, given: Mapping[str, Any]) -> "Source":
    """Open the source that a job names, with its options."""
    from quire.fetch.sources.registry import BUCKETS, SourceOptions, open_source

    # Of the operator's choosing only: a job must not say where the operator's token is sent.
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

    is_far = pipeline.embedder.startswith("openai:")
    return open_embedder(pipeline.embedder, **_endpoint(settings) if is_far else {})


class Waiting:
    """What a task does while it waits for an endpoint: it heeds a stop, and is not silent."""

    def __init__(self, ctx: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._ctx, self._clock = ctx, clock
        self._said: str | None = None
        self._moved_at = -TOLD_EVERY

    def __call__(self, why: str | None) -> None:
        """Look for a stop, and report; a reason only once, as each message is an event."""
        self._ctx.check()
        now = self._clock()
        if why is not None and why != self._said:
            self._said, self._moved_at = why, now
            self._ctx.progress(None, why)
        elif now >= self._moved_at + TOLD_EVERY:
            self._moved_at = now
            self._ctx.progress(None, None)


def settled_embedder(ctx: Any, pipeline: "Pipeline") -> "Embedder":
    """Open the embedder that a corpus names, its dimensions known: once stored, they are fixed."""
    from quire.store.search import vectors
    from quire.text.embed.openai import Endpoint

    found = embedder_of(ctx.settings, pipeline)
    if isinstance(found, Endpoint) and not found.dimensions:
        with ctx.database.read() as conn:
            found.dimensions = vectors.dimensions_of(conn, found.name)
        found.learn(Waiting(ctx))
    return found


def _endpoint(settings: Mapping[str, Any]) -> dict[str, Any]:
    url = str(settings.get("embed_url") or "")
    requests = float(settings.get("embed_requests_per_minute") or 0)
    tokens = float(settings.get("embed_tokens_per_minute") or 0)
    home = Path(settings["home"])
    # All processes of this home keep the limits together; a home is not made for that alone.
    is_shared = bool(requests or tokens) and home.is_dir()
    name = hashlib.blake2b(url.encode(), digest_size=6).hexdigest()
    return {
        "url": url,
        "key": str(settings.get("embed_api_key") or ""),
        "dimensions": int(settings.get("embed_dimensions") or 0),
        "requests_per_minute": requests,
        "tokens_per_minute": tokens,
        "shared": home / f"embed-{name}.pace" if is_shared else None,
    }
