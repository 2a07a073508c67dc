"""The rounds that every worker makes: dead workers, ended leases, stopped and stuck tasks.

Every act is a compare-and-set in a short transaction, so any number of processes may sweep.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quire import log
from quire.clock import Instant
from quire.model.records import WorkerRow
from quire.model.states import Reason
from quire.runtime import wakeup
from quire.runtime.worker import liveness
from quire.settings import Settings
from quire.store.db.engine import Database
from quire.store.queue import dependencies, job_actions, release, settle, workers

BATCH = 500


def sweep(db: Database, settings: Settings, own_id: str, known: Sequence[str]) -> None:
    """Make one round."""
    dead = find_dead(db, own_id, settings.lease_seconds)
    while (taken := db.write(lambda conn, now: _reap(conn, now, dead))) == BATCH:
        pass
    if dead:
        bury(db, settings.home, dead)
    db.write(lambda conn, now: job_actions.revoke_strays(conn, now=now))
    while db.write(lambda conn, now: job_actions.sweep_halted(conn, now=now)) == job_actions.BATCH:
        pass
    db.write(lambda conn, now: _unblock(conn, now, known))
    finish_revivals(db)
    if taken or dead:
        wakeup.ring(settings.home)


def finish_revivals(db: Database) -> None:
    """Go on where a process that resumed jobs died before it had released their tasks."""
    with db.read() as conn:
        ids = job_actions.reviving(conn)
    more = bool(ids)
    while more:
        more = db.write(lambda conn, now: job_actions.release_stopped(conn, ids, now=now)) > 0


def find_dead(db: Database, own_id: str, lease: float) -> list[WorkerRow]:
    """List workers that are certainly dead, or silent for longer than a lease."""
    with db.read() as conn:
        rows = [row for row in workers.live(conn) if row.id != own_id]
        now = db.now(conn)
    dead = []
    for row in rows:
        verdict = liveness.is_dead(row.lock_path, row.host, row.boot_id, row.pid, row.pid_start)
        if verdict or (verdict is None and row.heartbeat_at < now.wall - 2 * lease):
            dead.append(row)
    return dead


def bury(db: Database, home: Path, dead: Sequence[WorkerRow]) -> None:
    """Mark dead workers and remove what they left on this host."""
    ids = [row.id for row in dead]
    db.write(lambda conn, now: workers.set_state(conn, ids, "dead", now=now))
    for row in dead:
        log.event("worker.dead", level="warning", worker=row.id, pid=row.pid, host=row.host)
        if row.boot_id == liveness.place():
            Path(row.lock_path).unlink(missing_ok=True)
            wakeup.hush(home, row.id)
            shutil.rmtree(home / "scratch" / row.id, ignore_errors=True)


def _reap(conn: Any, now: Instant, dead: Sequence[WorkerRow]) -> int:
    taken = settle.reap(conn, now=now, dead=[row.id for row in dead], limit=BATCH)
    for task_id in taken:
        log.event("task.reaped", level="warning", task=task_id)
    return len(taken)


def _unblock(conn: Any, now: Instant, known: Sequence[str]) -> None:
    """Release what waited for a worker like this one, and what a lost wake-up left behind."""
    release.release(conn, release.blocked_for(conn, Reason.NO_WORKER, kinds_in=known), now=now)
    dependencies.let_next_job_go(conn, release.owners_waiting(conn), now=now)
    release.release(conn, release.no_longer_paused(conn), now=now)
    release.release(conn, release.no_longer_capped(conn), now=now)
