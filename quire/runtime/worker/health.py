"""Whether the processes of this home on this machine are well, for health checks.

Each holds a lock on a file while it lives. A database that is away makes no worker ill: it waits,
and ending it would lose what its children have done.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple

from quire.errors import QuireError
from quire.runtime import wakeup
from quire.runtime.worker import liveness
from quire.settings import Settings
from quire.store.db.engine import Database
from quire.store.queue import workers

#: How the lock files of each role begin; a worker's is named by its id.
ROLES = {"api": "api-", "worker": "w-", "scheduler": "scheduler-"}
#: A scheduler whose round takes longer is stuck.
LONGEST_ROUND = 600.0
ASK_SECONDS = 10.0


class Finding(NamedTuple):
    """How one role does on this machine."""

    role: str
    is_well: bool
    sentence: str


def hold(settings: Settings, role: str, told: str = "") -> liveness.Lock:
    """Take the lock that says that a process of this role lives; its file tells, say, its URL."""
    folder = wakeup.run_folder(settings.home)
    lock = liveness.hold(folder / f"{ROLES[role]}{os.getpid()}.lock")
    os.truncate(lock.fd, 0)  # of a namesake that was killed
    os.write(lock.fd, told.encode())
    return lock


def examine(settings: Settings, role: str | None = None) -> list[Finding]:
    """Look at one role, or at all that run here."""
    held = {name: _held(settings, name) for name in ([role] if role else ROLES)}
    looks = {"api": _api, "worker": _worker, "scheduler": _scheduler}
    found = [looks[name](settings, locks) for name, locks in held.items() if locks]
    if not found:
        return [Finding(role or "quire", False, "nothing of it runs here.")]
    return found


def _held(settings: Settings, role: str) -> list[Path]:
    """List the lock files of a role that a living process holds."""
    folder = wakeup.run_folder(settings.home)
    return [path for path in sorted(folder.glob(f"{ROLES[role]}*.lock")) if _is_held(path)]


def _is_held(path: Path) -> bool:
    try:
        return liveness.is_held(path)
    except OSError:
        return False


def _worker(settings: Settings, locks: list[Path]) -> Finding:
    """A worker that lives but has not beaten for a lease is stuck."""
    db = Database.open(settings.database, lease_seconds=settings.lease_seconds)
    try:
        with contextlib.closing(db), db.read() as conn:
            now = db.now(conn).wall
            rows = {row.id: now - row.heartbeat_at for row in workers.live(conn)}
    except QuireError as error:
        return Finding("worker", True, f"lives; it waits for the database ({error})")
    ages = {path.stem: rows[path.stem] for path in locks if path.stem in rows}
    stuck = [name for name, age in ages.items() if age > settings.lease_seconds]
    if stuck:
        return Finding("worker", False, f"{', '.join(stuck)} has not beaten for a whole lease.")
    return Finding("worker", True, f"{len(ages)} at work." if ages else "it starts.")


def _scheduler(settings: Settings, locks: list[Path]) -> Finding:
    age = min(time.time() - path.stat().st_mtime for path in locks)
    is_well = age <= LONGEST_ROUND
    return Finding("scheduler", is_well, f"its last round began {age:.0f} s ago.")


def _api(settings: Settings, locks: list[Path]) -> Finding:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    url = f"{locks[-1].read_text()}/readyz"
    try:
        with urlopen(url, timeout=ASK_SECONDS):  # noqa: S310
            return Finding("api", True, f"{url} says ready.")
    except HTTPError as error:
        with contextlib.closing(error):
            return Finding("api", False, f"{url} says {error.code}: {error.read(500).decode()}")
    except OSError as error:
        return Finding("api", False, f"{url} does not answer ({error}).")
