"""The periodic sweep of every worker: dead workers, expired leases, stopped and stuck tasks.

Each action is a compare-and-set in a short transaction, so any number of workers may sweep.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from quire import log
from quire.clock import Instant
from quire.model.records import WorkerRow
from quire.runtime import wakeup
from quire.runtime.worker import liveness
from quire.settings import Settings
from quire.store import Connection
from quire.store.db.engine import Database
from quire.store.queue import job_actions, release, settle, transition, workers

BATCH = 500


def sweep(db: Database, settings: Settings, own_id: str, known: Sequence[str]) -> None:
    """Sweep once."""
    dead, silent = find_dead(db, own_id, settings.lease_seconds)
    while (reaped := db.write(lambda conn, now: _reap(conn, now, dead))) == BATCH:
        pass
    if dead or silent:
        mark_dead(db, settings.home, dead + silent)
    db.write(lambda conn, now: job_actions.revoke_strays(conn, now=now))
    _in_batches(lambda: db.write(_sweep_halted))
    db.write(lambda conn, now: release.release_overlooked(conn, known, now=now))
    db.write(lambda conn, now: transition.satisfy_late(conn, now=now))
    finish_actions(db)
    if reaped or dead:
        wakeup.wake(settings.home)


def finish_actions(db: Database) -> None:
    """Finish what people did to jobs in processes that died before all tasks had followed."""
    with db.read() as conn:
        ids = job_actions.unfinished(conn)
    _in_batches(lambda: bool(ids) and db.write(lambda c, now: job_actions.finish(c, ids, now=now)))


def _in_batches(act: Callable[[], bool]) -> None:
    """Repeat until nothing is left; the worker's leases wait no longer than a second for it."""
    until = time.monotonic() + 1.0
    while act() and time.monotonic() < until:
        pass


def find_dead(db: Database, own_id: str, lease: float) -> tuple[list[WorkerRow], list[WorkerRow]]:
    """List the workers that are dead, and those silent for two leases, whose leases decide."""
    with db.read() as conn:
        rows = [row for row in workers.live(conn) if row.id != own_id]
        now = db.now(conn)
    dead, silent = [], []
    for row in rows:
        verdict = liveness.is_dead(row)
        silence = abs(now.wall - row.heartbeat_at)
        # The clock of SQLite's leases starts over with a boot, so those of another never end.
        is_of_other_boot = db.is_embedded and not liveness.is_same_boot(row)
        if verdict or (verdict is None and is_of_other_boot and silence > lease):
            dead.append(row)
        elif verdict is None and silence > 2 * lease:
            silent.append(row)
    return dead, silent


def mark_dead(db: Database, home: Path, dead: Sequence[WorkerRow]) -> None:
    """Mark workers as dead and remove their files on this host."""
    ids = [row.id for row in dead]
    db.write(lambda conn, now: workers.set_state(conn, ids, "dead", now=now))
    for row in dead:
        log.event("worker.dead", level="warning", worker=row.id, pid=row.pid, host=row.host)
        if row.boot_id == liveness.boot_and_namespace():
            Path(row.lock_path).unlink(missing_ok=True)
            wakeup.remove_socket(home, row.id)
            shutil.rmtree(home / "scratch" / row.id, ignore_errors=True)


def _sweep_halted(conn: Connection, now: Instant) -> bool:
    return job_actions.sweep_halted(conn, now=now) > 0


def _reap(conn: Connection, now: Instant, dead: Sequence[WorkerRow]) -> int:
    reaped = settle.reap(conn, now=now, dead=[row.id for row in dead], limit=BATCH)
    for task_id in reaped:
        log.event("task.reaped", level="warning", task=task_id)
    return len(reaped)
