"""The job kinds of ingestion. Importing this loads no parser and no model.

`ingest` lists sources; `ingest.document` takes in one file, and for a large one plans
`ingest.range` tasks and an `ingest.swap` that waits for them.
"""

from typing import Any

from quire.model.contracts import job

_DAY = 24 * 3600.0
#: Longer than a fetch keeps trying for one chunk, and than a file without pages takes to be read.
_STUCK = 1800.0


@job("ingest", max_attempts=6, timeout=7 * _DAY, backoff=5.0)
def ingest(ctx: Any, **payload: Any) -> None:
    """List sources and queue what is to be indexed."""
    from quire.ingest import listing

    listing.run(ctx, **payload)


@job(
    "ingest.document",
    max_attempts=3,
    timeout=_DAY,
    stall_timeout=_STUCK,
    backoff=5.0,
    memory=4 << 30,
)
def document(ctx: Any, **payload: Any) -> None:
    """Fetch a file and find out what it is; read it here if it is small."""
    from quire.ingest import document_task

    document_task.run(ctx, **payload)


# The time it waits for the limit of an endpoint, with all others, is in its timeout: hence a day.
@job("ingest.range", max_attempts=3, timeout=_DAY, stall_timeout=600.0, backoff=2.0, memory=4 << 30)
def pages(ctx: Any, **payload: Any) -> None:
    """Read a range of pages, cut and embed their text."""
    from quire.ingest import range_task

    range_task.run(ctx, **payload)


@job("ingest.swap", max_attempts=3, timeout=_DAY, stall_timeout=_STUCK, backoff=5.0, memory=4 << 30)
def swap(ctx: Any, **payload: Any) -> None:
    """Make a generation visible when all of its ranges have ended."""
    from quire.ingest import document_task

    document_task.finish(ctx, **payload)
