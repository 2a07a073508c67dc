"""`quire ingest --watch`: polls sources and submits files that have stopped changing."""

import glob
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import typer

from quire import format
from quire.app import App
from quire.cli import console
from quire.cli.ingest import own_worker
from quire.control import queries
from quire.control.ingest import IngestRequest
from quire.errors import QuireError
from quire.fetch.items import Item
from quire.fetch.sources import watch
from quire.ingest import resources

INTERRUPTED = 130
#: Files per job; more become several jobs.
BATCH = 500


def run(app: App, request: IngestRequest, priority: int) -> None:
    """Watch the requested sources until Ctrl-C."""
    console.say(
        "Watching. A file is ingested once it has not changed for some seconds. Stop with Ctrl-C."
    )
    jobs: list[int] = []
    with own_worker.if_needed(app) as worker:
        watches = [Watched(app, request, url, priority) for url in request.sources]
        try:
            while True:
                jobs = _tell_ended(app, jobs)
                for each in watches:
                    jobs += each.look(time.monotonic())
                worker.check()
                time.sleep(min(0.5, *(max(w.next_at - time.monotonic(), 0.05) for w in watches)))
        except KeyboardInterrupt:
            if jobs:
                named = ", ".join(map(str, jobs))
                console.note(f"\nNot finished: job {named}. Any worker continues it: quire up")
            raise typer.Exit(INTERRUPTED) from None


class Watched:
    """One watched source."""

    def __init__(self, app: App, request: IngestRequest, url: str, priority: int) -> None:
        self.next_at = 0.0
        self._app = app
        self._request = replace(request, sources=(url,))
        self._priority = priority
        self._observations: dict[str, watch.Observation] = {}

    def look(self, now: float) -> list[int]:
        """List the source if it is due, submit what has stopped changing; returns the jobs."""
        if now < self.next_at:
            return []
        try:
            items = list(self._items())
        except QuireError as error:
            console.note(format.one_line(str(error), 400))
            self.next_at = now + watch.RESCAN_SECONDS
            return []
        found = watch.find_stable(self._observations, items, now, rescan=watch.STABILITY_SECONDS)
        self._observations, self.next_at = found.observations, found.next_at
        if not found.stable and not found.gone:
            return []
        # A full listing also finds deleted files, but would ingest files still being written.
        is_whole = all(each.taken for each in found.observations.values())
        requests = [self._request] if is_whole else list(self._parts(found.stable))
        ids = self._app.submit_many([each.submission(self._priority) for each in requests])
        what = f"{format.count(len(found.stable), 'file')} from {self._request.sources[0]}"
        for job_id in ids:
            console.say(f"{_clock()} job {job_id}: {what}")
        return ids

    def _items(self) -> Iterator[Item]:
        [url] = self._request.sources
        source = resources.source_of(self._app.settings.for_children, url, self._request.options)
        for page in source.pages(None):
            yield from page.items

    def _parts(self, stable: Sequence[Item]) -> Iterator[IngestRequest]:
        # Escaped, so that as a pattern each path matches only itself.
        names = ["/" + glob.escape("/".join(filter(None, (i.folder, i.name)))) for i in stable]
        for start in range(0, len(names), BATCH):
            include = names[start : start + BATCH]
            yield replace(self._request, options={**self._request.options, "include": include})


def _tell_ended(app: App, jobs: Sequence[int]) -> list[int]:
    """Print how jobs finished; returns those still running."""
    left = []
    for job_id in jobs:
        job = queries.job(app.caller, job_id)
        if job["finished_at"] is None:
            left.append(job_id)
            continue
        why = f": {format.one_line(job['error'], 200)}" if job["error"] else ""
        console.say(f"{_clock()} job {job_id} {job['state']}{why}")
    return left


def _clock() -> str:
    return time.strftime("%H:%M:%S")
