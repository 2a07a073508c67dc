"""Lists sources in this process if nothing in them has changed.

Starting a worker takes longer than listing some files that need no work. Whether they do is
previewed first: files that are to be indexed are not kept waiting by a listing without a worker.
"""

import os
from itertools import islice

from quire.app import App
from quire.control import ingest, queries
from quire.control.ingest import IngestRequest
from quire.model.contracts import MARK, in_queues

#: More files are left to a worker, whose child renews the lease while it lists them.
MOST_FILES = 5_000
#: Verdicts of files that need no work.
_IDLE = ("same", "failed", "gone", "left out")


def list_here(app: App, request: IngestRequest) -> None:
    """Run the listing of a request that was submitted where no worker is, if that is all."""
    if not all(source.startswith(("/", "file:")) for source in request.sources):
        return
    if queries.count_jobs(app.caller, {"kind": "ingest", "states": ["pending", "running"]}) > 1:
        return  # the other one may be next
    files = ingest.preview(app.caller, app.settings.for_children, request)
    for count, file in enumerate(islice(files, MOST_FILES + 1)):
        if file.verdict not in _IDLE or count == MOST_FILES:
            return
    from quire.ingest import kinds
    from quire.runtime.inline import InlineWorker

    [kind] = in_queues([getattr(kinds.ingest, MARK)], app.settings.queue_by_kind)
    worker = InlineWorker(
        app.db, {kind.name: kind}, app.settings.for_children, f"inline-{os.getpid()}"
    )
    for lease in worker.claim(kind.queue):
        worker.run(lease)
