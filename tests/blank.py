"""A migrated, empty embedded database: made once a run, copied wherever a test begins with one.

Migrating costs more than most tests do. The tests of migrations, of a home's first command and
of what is there before it make theirs as users do.
"""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path

from tests import scratch


def put(home: Path) -> Path:
    """Make the home's database, unless there is one, and return its path."""
    path = home / "quire.db"
    if not path.exists():
        home.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_original(), path)
    return path


@functools.cache
def _original() -> Path:
    from quire.store import open_database

    folder = Path(os.environ[scratch.RUN_VARIABLE])
    made = folder / "blank.db"
    with scratch.locked(folder / "blank.lock"):
        if not made.exists():
            database = open_database(f"sqlite:///{folder / 'making.db'}")
            database.migrate()
            # The last connection to close moves the log into the file.
            database.close()
            (folder / "making.db").rename(made)
    return made
