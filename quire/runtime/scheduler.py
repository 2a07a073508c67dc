"""The scheduler: lifts what waits long, indexes vectors, prunes and collects what is old.

With a broker it rings, too. Several may run; none is special.
"""

import os
import selectors
import time
from typing import TYPE_CHECKING, Any

from quire import log
from quire.clock import Instant
from quire.errors import (
    BlobsUnavailable,
    DatabaseUnavailable,
    FetchFailed,
    SchemaAhead,
    SourceRefused,
)
from quire.fetch.transfer.part_file import remove
from quire.ingest import resources
from quire.runtime import wakeup
from quire.runtime.parent_pipe import Leash
from quire.runtime.signals import Bell
from quire.runtime.worker import health
from quire.settings import Settings
from quire.store.access import audit, sessions
from quire.store.db import migrate
from quire.store.db.engine import Database
from quire.store.documents.gc import Collector
from quire.store.queue import aging, events, job_actions, retention, submit, workers
from quire.store.search.hnsw import Settler

if TYPE_CHECKING:
    from quire.celery.dispatcher import Dispatcher

DAY = 86_400.0
KEY_SECONDS = DAY
HOUR = 3_600.0
PRUNE_EVERY = 60.0
#: A fetch that writes nothing for so long is not gone on with.
PART_SECONDS = DAY


def run(settings: Settings) -> int:
    """Run until told to stop; returns the exit code."""
    selector = selectors.DefaultSelector()
    leash, bell = Leash(selector), Bell(selector)
    db = Database.open(
        settings.database,
        synchronous=settings.sqlite_synchronous,
        lease_seconds=settings.lease_seconds,
    )
    lock = health.hold(settings, "scheduler")
    log.event("scheduler.started", pid=os.getpid())
    dispatcher = _dispatcher(settings)
    collector, settler = _collector(db, settings), Settler(db)
    pruned_at, code = 0.0, 0
    while not code and not bell.rung and not leash.is_cut:
        lock.touch()
        due = time.monotonic() >= pruned_at + PRUNE_EVERY
        try:
            with db.read() as conn:
                migrate.lacking(conn)
            tick(db, settings, prune=due, collector=collector)
            pruned_at = time.monotonic() if due else pruned_at
            settler.round()
        except DatabaseUnavailable as error:
            log.trouble("scheduler.waits", error)
        except SchemaAhead as error:
            log.trouble("scheduler.outdated", error)
            code = error.exit_code
            continue
        for key, _ in selector.select(0 if settler.has_more else settings.sweep_interval):
            if key.data == "leash":
                leash.read()
            else:
                bell.hear()
    if dispatcher is not None:
        dispatcher.stop()
    db.close()
    lock.release()
    log.event("scheduler.stopped")
    return code


def _dispatcher(settings: Settings) -> "Dispatcher | None":
    """Start to ring, where a broker delivers."""
    if not settings.broker_url:
        return None
    from quire.celery.dispatcher import Dispatcher

    dispatcher = Dispatcher(settings)
    dispatcher.start()
    return dispatcher


def tick(
    db: Database, settings: Settings, *, prune: bool = True, collector: Collector | None = None
) -> dict[str, int]:
    """Make one round; returns what was done, by name. A collector goes on where it was."""
    lifted = db.write(lambda conn, now: aging.lift(conn, now=now, after=settings.aging_seconds))
    if lifted:
        log.event("tasks.lifted", count=len(lifted))
        wakeup.ring(settings.home)
    done = {"lifted": len(lifted)}
    if prune:
        done |= _prune(db, settings)
        done |= _collect(collector or _collector(db, settings), settings)
    return done


def _collector(db: Database, settings: Settings) -> Collector:
    return Collector(db, resources.blobs_of(settings.for_children).delete)


def _collect(collector: Collector, settings: Settings) -> dict[str, int]:
    """Collect what no document uses any more; one who refuses to delete is no reason to stop."""
    done: dict[str, Any] = {}
    try:
        # Not within a transaction: what is away is waited for before anything is locked.
        resources.blobs_of(settings.for_children).require()
        done = collector.round(keep_seconds=settings.keep_generations_hours * HOUR)
        done |= {"parts": _remove_parts(collector.db, settings)}
    except (OSError, BlobsUnavailable, FetchFailed, SourceRefused) as error:
        log.trouble("collect.refused", error)
    if any(done.values()):
        log.event("collected", **done)
    return {f"collected_{name}": count for name, count in done.items()}


def _remove_parts(db: Database, settings: Settings) -> int:
    """Remove what fetches that nobody goes on with have left."""
    with db.read() as conn:
        before = db.now(conn).wall - PART_SECONDS
    parts = resources.blobs_of(settings.for_children).abandoned(before)
    for part in parts:
        remove(part)
    return len(parts)


def _prune(db: Database, settings: Settings) -> dict[str, int]:
    gone: dict[str, Any] = {"jobs": 0, "events": 0, "keys": 0, "workers": 0}
    while count := db.write(lambda conn, now: _prune_jobs(conn, now, settings)):
        gone["jobs"] += count

    def rest(conn: Any, now: Instant) -> None:
        before = now.wall - settings.keep_events_days * DAY
        gone["events"] = events.prune(conn, before=before, limit=5000)
        gone["keys"] = submit.prune_keys(conn, before=now.wall - KEY_SECONDS)
        gone["workers"] = workers.prune(conn, before=now.wall - DAY)
        gone.update(sessions.prune(conn, before=now.wall))
        gone["audit"] = audit.prune(conn, before=now.wall - settings.keep_audit_days * DAY)

    db.write(rest)
    if any(gone.values()):
        log.event("pruned", **gone)
    return gone


def _prune_jobs(conn: Any, now: Instant, settings: Settings) -> int:
    ids = retention.expired(
        conn,
        completed_before=now.wall - settings.keep_completed_days * DAY,
        failed_before=now.wall - settings.keep_failed_days * DAY,
    )
    return len(job_actions.delete(conn, ids, now=now)) if ids else 0
