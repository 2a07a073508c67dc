"""The processes of Quire, without the command line around them.

The supervisor starts the others by `quire api`, `quire worker` and `quire scheduler` with their
settings in the environment, and `quire up` starts itself over when it has checked its own. They
come here before Typer is imported, which costs 10 MB a process.
"""

import contextlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from quire import log
from quire import settings as settings_module
from quire.cli import session
from quire.errors import DatabaseUnavailable, PluginFailed, QuireError
from quire.runtime.signals import PARENT_FD
from quire.settings import Settings

ROLES = (["api"], ["worker"], ["scheduler"])
#: What `quire up` leaves for itself: the number of workers, and 1 if the API is wanted.
_SUPERVISE = "QUIRE_SUPERVISE"


def run_managed() -> int | None:
    """Run the process that the environment asks for; None if the command line decides."""
    counts = os.environ.pop(_SUPERVISE, None)
    if counts is None and (PARENT_FD not in os.environ or sys.argv[1:] not in ROLES):
        return None
    try:
        settings = prepared(settings_module.load())
        if counts is None:
            return start(sys.argv[1], settings)
        from quire.runtime import supervisor

        workers, with_api = map(int, counts.split())
        return supervisor.run(settings, worker_count=workers, with_api=bool(with_api))
    except QuireError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def prepared(settings: Settings) -> Settings:
    """Set up logging, and refuse settings that could never work."""
    log.setup(as_json=settings.log_json, level=settings.log_level)
    for name in settings.plugins:
        # Checked but not loaded: only child processes run plugins.
        if name.endswith(".py") and not Path(name).is_file():
            raise PluginFailed(f"plugin {name}: no such file. Give the path of a .py file.")
    session.check_extras(settings)
    return settings


def start(role: str, settings: Settings) -> int:
    """Run a process until it is told to stop; returns its exit code."""
    if role == "api":
        from quire.web import server

        return server.run(settings)
    if role == "worker" and settings.broker_url:
        from quire.celery import embedded_worker

        return embedded_worker.run(settings)
    if role == "worker":
        from quire.runtime.worker import loop

        return loop.run(settings)
    from quire.runtime import scheduler

    if not settings.broker_url:
        return scheduler.run(settings, None)
    from quire.celery.dispatcher import Dispatcher

    return scheduler.run(settings, lambda: Dispatcher(settings))


def supervise(settings: Settings, *, workers: int, with_api: bool) -> NoReturn:
    """Check the database, then become a supervisor that has not imported it."""
    from quire.runtime import supervisor

    check_database(settings)
    supervisor.export(settings)
    os.environ[_SUPERVISE] = f"{workers} {int(with_api)}"
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


def check_database(settings: Settings) -> None:
    """Refuse a database that Quire cannot use; one that is down may come back.

    Once for all processes of a supervisor: each takes half a second for it.
    """
    from quire.app import App

    with contextlib.suppress(DatabaseUnavailable):
        App(settings).close()
