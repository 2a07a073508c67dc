"""Health of the Quire processes of this home on this machine, for health checks.

Each process holds a lock on a file while it lives. A worker without a database is healthy: it
waits, and restarting it would lose what its children have done.
"""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from quire.clock import SystemClock
from quire.errors import QuireError
from quire.runtime import wakeup
from quire.runtime.worker import liveness
from quire.settings import Settings
from quire.store import open_database
from quire.store.queue import workers

#: Prefix of the lock files of each role; a worker's lock is named by its id.
ROLES = {"api": "api-", "worker": "w-", "scheduler": "scheduler-"}
#: A scheduler whose round takes longer (in seconds) is stuck.
MAX_ROUND = 600.0
API_TIMEOUT = 10.0


class Health(NamedTuple):
    """The health of one role on this machine."""

    role: str
    is_healthy: bool
    detail: str


def hold(settings: Settings, role: str, content: str = "") -> liveness.Lock:
    """Take the lock of a process of this role and write `content`, such as a URL, into its file."""
    folder = wakeup.run_folder(settings.home)
    lock = liveness.hold(folder / f"{ROLES[role]}{os.getpid()}.lock")
    os.truncate(lock.fd, 0)  # a killed process with the same PID may have left content
    os.write(lock.fd, content.encode())
    return lock


def check(settings: Settings, role: str | None = None) -> list[Health]:
    """Check one role, or all roles that run here."""
    folder = wakeup.run_folder(settings.home)
    checks = {"api": _api, "worker": _worker, "scheduler": _scheduler}
    found = []
    for name in [role] if role else ROLES:
        files = sorted(folder.glob(f"{ROLES[name]}*.lock"))
        if held := [path for path in files if liveness.is_held(path)]:
            found.append(checks[name](settings, held))
    return found or [Health(role or "quire", False, "not running on this machine.")]


def _worker(settings: Settings, locks: list[Path]) -> Health:
    """Report workers that live but sent no heartbeat for a whole lease as stuck."""
    db = open_database(settings.database, lease_seconds=settings.lease_seconds)
    try:
        with contextlib.closing(db), db.read() as conn:
            now = db.now(conn).wall
            rows = {row.id: now - row.heartbeat_at for row in workers.live(conn)}
    except QuireError as error:
        return Health("worker", True, f"running; waits for the database ({error})")
    ages = {path.stem: rows[path.stem] for path in locks if path.stem in rows}
    stuck = [name for name, age in ages.items() if age > settings.lease_seconds]
    if stuck:
        text = f"{', '.join(stuck)}: no heartbeat for more than {settings.lease_seconds:g} s."
        return Health("worker", False, text)
    return Health("worker", True, f"{len(ages)} running." if ages else "starting.")


def _scheduler(settings: Settings, locks: list[Path]) -> Health:
    # Compared with the modification time of a file, so the wall clock of this machine counts.
    now = SystemClock().now().wall
    age = min(now - path.stat().st_mtime for path in locks)
    return Health("scheduler", age <= MAX_ROUND, f"last round started {age:.0f} s ago.")


def _api(settings: Settings, locks: list[Path]) -> Health:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    url = f"{locks[-1].read_text()}/readyz"
    try:
        with urlopen(url, timeout=API_TIMEOUT):  # noqa: S310
            return Health("api", True, f"{url} is ready.")
    except HTTPError as error:
        with contextlib.closing(error):
            return Health("api", False, f"{url} answered {error.code}: {error.read(500).decode()}")
    except OSError as error:
        return Health("api", False, f"{url} does not answer ({error}).")
