"""Two versions of Quire at once, as real processes.

The older one is this checkout as it is. The later one is the same code in a process whose package
of migrations has one folder more, with the migrations that a test wrote.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from quire.store.db import migrate
from tests.integration.processes import WORKER, Running, Site
from tests.waiting import until

_LATER = (
    "import sys; from quire.store.db import migrations; "
    "migrations.__path__.append(sys.argv.pop(1)); "
)
_COMMAND = "from quire.cli import main; main()"
#: What `quire migrate` does, without the command line around it, whose import costs more.
_MIGRATE = (
    "import json; from quire import errors, settings; "
    "from quire.runtime.worker import liveness; "
    "from quire.store import open_database; s = settings.load(); "
    "db = open_database(s.database, lease_seconds=s.lease_seconds); "
    "print(json.dumps(db.migrate(timeout=200, alive=liveness.is_alive)))"
)
#: Seconds for a program on a machine that is busy with other tests.
PATIENCE = 300
_MIGRATION = '''
"""Made by a test."""

{oldest}

def up(conn):
    conn.exec_driver_sql("{statement}")
'''


class Later:
    """A later Quire on the same database."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.folder = site.home / "later"
        self.folder.mkdir()
        self.last = migrate.versions()[-1]

    def adds(self, statement: str, *, oldest: int | None) -> int:
        """Give it one more migration; returns its number."""
        self.last += 1
        line = "" if oldest is None else f"OLDEST = {oldest}"
        text = _MIGRATION.format(oldest=line, statement=statement)
        (self.folder / f"m{self.last:04}_later.py").write_text(text)
        return self.last

    def worker(self, **settings: Any) -> Running:
        """Start one of its workers and wait until it is registered."""
        running = self.site.start_code(_LATER + WORKER, str(self.folder), **settings)
        until(lambda: running.logs("worker.started"), within=PATIENCE, what=lambda: running.log)
        return running

    def migrate(self) -> list[int]:
        """Make its migrations; returns their numbers."""
        return list(json.loads(self._run(_MIGRATE).stdout))

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of its commands."""
        return self._run(_COMMAND, *words)

    def _run(self, code: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", _LATER + code, str(self.folder), *words],
            env=self.site.environment(), capture_output=True, text=True, cwd=self.site.home,
            timeout=PATIENCE,
        )  # fmt: skip


def older(site: Site, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the older Quire."""
    return subprocess.run(
        [sys.executable, "-m", "quire", *command], env=site.environment(),
        capture_output=True, text=True, cwd=site.home, timeout=PATIENCE,
    )  # fmt: skip
