"""The scheduler: periodic maintenance of the database and of blob storage.

It raises the priority of tasks that wait long, indexes new vectors, prunes old rows and collects
unused blobs. With a broker it also runs the dispatcher. Several schedulers may run at once.
"""

import os
import selectors
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from quire import log
from quire.clock import Instant
from quire.errors import (
    BlobsUnavailable,
    DatabaseUnavailable,
    FetchFailed,
    SchemaAhead,
    SourceRefused,
    Transferred,
)
from quire.fetch.blobs.backend import open_blobs
from quire.fetch.transfer.part_file import remove
from quire.runtime import wakeup
from quire.runtime.signals import ParentPipe, SignalWatch
from quire.runtime.worker import health
from quire.settings import Settings
from quire.store import Connection, open_database
from quire.store.access import audit, secrets, sessions
from quire.store.db import migrate
from quire.store.db.engine import Database
from quire.store.documents.gc import Collector
from quire.store.queue import (
    aging,
    events,
    job_actions,
    release,
    retention,
    submit,
    workers,
)
from quire.store.search.hnsw import HnswIndexer

HOUR, DAY = 3_600.0, 86_400.0
#: How long an idempotency key is remembered.
KEY_SECONDS = DAY
PRUNE_EVERY = 60.0
#: How long one round deletes jobs before the other steps run again.
DELETE_SECONDS = 20.0
#: A partial download that was not written to for so long is abandoned.
PART_SECONDS = DAY


def run(settings: Settings, dispatcher: Callable[[], AbstractContextManager[Any]] | None) -> int:
    """Run until told to stop, beside a dispatcher if there is a broker; returns the exit code."""
    selector = selectors.DefaultSelector()
    parent, signals = ParentPipe(selector), SignalWatch(selector)
    db = open_database(
        settings.database,
        synchronous=settings.sqlite_synchronous,
        lease_seconds=settings.lease_seconds,
    )
    lock = health.hold(settings, "scheduler")
    log.event("scheduler.started", pid=os.getpid())
    collector = Collector(db, open_blobs(settings.for_children).delete)
    settler = HnswIndexer(db)
    pruned_at, code = 0.0, 0
    with dispatcher() if dispatcher else nullcontext():
        while not code and not signals.stop_requests and not parent.is_closed:
            lock.touch()
            is_due = time.monotonic() >= pruned_at + PRUNE_EVERY
            try:
                with db.read() as conn:
                    migrate.check(conn)
                tick(db, settings, prune=is_due, collector=collector)
                pruned_at = time.monotonic() if is_due else pruned_at
                settler.round()
            except DatabaseUnavailable as error:
                log.trouble("scheduler.waits", error)
            except (SchemaAhead, Transferred) as error:
                log.trouble("scheduler.outdated", error)
                code = error.exit_code
                continue
            for key, _ in selector.select(0 if settler.has_more else settings.sweep_interval):
                if key.data == "parent":
                    parent.read()
                else:
                    signals.clear()
    db.close()
    lock.release()
    log.event("scheduler.stopped")
    return code


def tick(
    db: Database, settings: Settings, *, prune: bool = True, collector: Collector
) -> dict[str, int]:
    """Run one round; returns counts by name. A collector continues where it stopped.

    A step that fails does not keep the others from running: it is tried again in the next round.
    """
    steps: list[Callable[[], dict[str, int]]] = [lambda: _promote(db, settings)]
    if prune:
        steps += [
            lambda: _correct_clock(db),
            lambda: _release_stuck(db),
            lambda: _prune(db, settings),
            lambda: _delete_jobs(db, settings),
            lambda: _collect(collector, settings),
        ]
    done: dict[str, int] = {}
    for step in steps:
        try:
            done |= step()
        except SchemaAhead:
            raise
        except Exception as error:
            log.trouble("scheduler.step_failed", error)
    return done


def _promote(db: Database, settings: Settings) -> dict[str, int]:
    lifted = db.write(lambda conn, now: aging.promote(conn, now=now, after=settings.aging_seconds))
    if lifted:
        log.event("tasks.lifted", count=len(lifted))
        wakeup.wake(settings.home)
    return {"lifted": len(lifted)}


def _release_stuck(db: Database) -> dict[str, int]:
    return {"released": db.write(lambda conn, now: release.release_stuck(conn, now=now))}


def _collect(collector: Collector, settings: Settings) -> dict[str, int]:
    """Collect garbage; a storage that refuses to delete does not stop the scheduler."""
    done: dict[str, Any] = {}
    try:
        # Before the transaction: no row is locked while the storage is unavailable.
        blobs = open_blobs(settings.for_children)
        blobs.check_available()
        done = collector.round(keep_seconds=settings.keep_generations_hours * HOUR)
        with collector.db.read() as conn:
            before = collector.db.now(conn).wall - PART_SECONDS
        parts = blobs.abandoned_parts(before)
        for part in parts:
            remove(part)
        done["parts"] = len(parts)
    except (OSError, BlobsUnavailable, FetchFailed, SourceRefused) as error:
        log.trouble("collect.refused", error)
    if any(done.values()):
        log.event("collected", **done)
    return {f"collected_{name}": count for name, count in done.items()}


def _correct_clock(db: Database) -> dict[str, int]:
    count = db.write(lambda conn, now: release.correct_due_times(conn, now=now))
    if count:
        log.event("clock.set_back", level="warning", tasks=count)
    return {"corrected": count}


def _prune(db: Database, settings: Settings) -> dict[str, int]:
    """Delete old rows that belong to no job, some of each in one transaction."""
    pruned: dict[str, Any] = {}

    def act(conn: Connection, now: Instant) -> None:
        before = now.wall - settings.keep_events_days * DAY
        pruned["events"] = events.prune(conn, before=before, limit=5000)
        pruned["keys"] = submit.prune_keys(conn, before=now.wall - KEY_SECONDS)
        pruned["workers"] = workers.prune(conn, before=now.wall - DAY)
        pruned.update(sessions.prune(conn, before=now.wall))
        pruned["audit"] = audit.prune(conn, before=now.wall - settings.keep_audit_days * DAY)
        pruned["secrets"] = secrets.prune(conn, before=now.wall - secrets.KEEP_DAYS * DAY)

    db.write(act)
    if any(pruned.values()):
        log.event("pruned", **pruned)
    return pruned


def _delete_jobs(db: Database, settings: Settings) -> dict[str, int]:
    """Delete jobs that are old enough, and the rows of deleted jobs, in short transactions."""
    count, until, has_more = 0, time.monotonic() + DELETE_SECONDS, True
    while has_more and time.monotonic() < until:
        more = db.write(lambda conn, now: _delete_expired(conn, now, settings))
        count += more
        has_more = db.write(lambda conn, now: job_actions.collect(conn, now=now)) or more > 0
    if count:
        log.event("pruned", jobs=count)
    return {"jobs": count}


def _delete_expired(conn: Connection, now: Instant, settings: Settings) -> int:
    ids = retention.expired(
        conn,
        completed_before=now.wall - settings.keep_completed_days * DAY,
        failed_before=now.wall - settings.keep_failed_days * DAY,
    )
    return len(job_actions.delete(conn, ids, now=now)) if ids else 0
