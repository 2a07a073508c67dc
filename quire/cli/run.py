"""`quire up`, `quire api`, `quire worker` and `quire scheduler`: the processes of Quire."""

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli import console, options, session
from quire.errors import BadInput, DatabaseUnavailable, NotFound, PluginFailed

if TYPE_CHECKING:
    from quire.settings import Settings

Concurrency = Annotated[
    int | None,
    typer.Option(metavar="N", help="Child processes of a worker; 0 means one per core."),
]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="NAME", help="Queue to serve. May be repeated."),
]
Workers = Annotated[int, typer.Option(metavar="N", help="Workers to run.")]

MOST_WORKERS = 64

worker_app = options.Group(
    help="Run one worker until Ctrl-C.",
)


def up(
    workers: Workers = 1,
    concurrency: Concurrency = None,
    queue: Queues = None,
    plugin: options.Plugins = None,
    no_api: Annotated[
        bool, typer.Option("--no-api", help="Without the API and the dashboard.")
    ] = False,
) -> None:
    """Run Quire on this machine until Ctrl-C.

    Starts the API with the dashboard, workers and the scheduler, and restarts those that die.
    Ctrl-C lets running tasks end.
    """
    from quire.runtime import supervisor

    if not 1 <= workers <= MOST_WORKERS:
        raise BadInput(f"--workers: {workers} is not between 1 and {MOST_WORKERS}.")
    settings = _started(concurrency, queue, plugin)
    raise typer.Exit(supervisor.run(settings, worker_count=workers, with_api=not no_api))


Host = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Address to listen on, beside QUIRE_API_HOST.")
]
Port = Annotated[
    int | None,
    typer.Option(metavar="N", help="Port to listen on, beside QUIRE_API_PORT; 0 means any free."),
]


def api(host: Host = None, port: Port = None, plugin: options.Plugins = None) -> None:
    """Serve the API and the dashboard until Ctrl-C.

    It may be restarted at any time: no job notices, and open pages come back by themselves.
    """
    settings = _started(None, None, plugin, api_host=host, api_port=port)
    from quire.web import server

    raise typer.Exit(server.run(settings))


@worker_app.callback(invoke_without_command=True)
def worker(
    context: typer.Context,
    concurrency: Concurrency = None,
    queue: Queues = None,
    plugin: options.Plugins = None,
) -> None:
    """Run one worker until Ctrl-C.

    It claims tasks and runs each in a child process. Ctrl-C lets running tasks end. With
    QUIRE_BROKER_URL it is a Celery worker too, and claims when a message tells it to.
    """
    if context.invoked_subcommand is not None:
        return
    settings = _started(concurrency, queue, plugin)
    if settings.broker_url:
        from quire.celery import embedded_worker

        raise typer.Exit(embedded_worker.run(settings))
    from quire.runtime.worker import loop

    raise typer.Exit(loop.run(settings))


WorkerIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="WORKER", help="Only these workers; `quire status` lists them."),
]


@worker_app.command()
def drain(worker: WorkerIds = None) -> None:
    """Let workers on this machine finish what they run, and end.

    A worker of `quire up` is started again by it: stop `quire up` instead.
    """
    from quire.control import queries
    from quire.runtime.worker import liveness

    with session.open_app() as opened:
        living = queries.live_worker_rows(opened.caller)
    if unknown := sorted(set(worker or ()) - {row.id for row in living}):
        raise NotFound(f"worker {unknown[0]}: no such worker. `quire status` lists them.")
    wanted = [row for row in living if not worker or row.id in worker]
    for row in wanted:
        if liveness.is_here(row):
            os.kill(row.pid, signal.SIGTERM)
            console.say(f"worker {row.id} (pid {row.pid}) ends when its tasks have.")
        else:
            console.say(f"worker {row.id} is dead, or on another machine ({row.host}).")
    if not wanted:
        console.say("No worker is running.")


def scheduler(plugin: options.Plugins = None) -> None:
    """Run the scheduler until Ctrl-C.

    It lifts tasks that waited long and prunes what is old. With QUIRE_BROKER_URL it also sends
    the messages for which workers claim.
    """
    from quire.runtime import scheduler as process

    settings = _started(None, None, plugin)
    if not settings.broker_url:
        raise typer.Exit(process.run(settings))
    from quire.celery.dispatcher import Dispatcher

    raise typer.Exit(process.run(settings, lambda: Dispatcher(settings)))


def _started(
    concurrency: int | None, queues: list[str] | None, plugins: list[str] | None, **given: Any
) -> "Settings":
    """Read the settings, begin to log, and refuse at once what could never run."""
    from quire import log
    from quire.app import App

    served = tuple(queues) if queues else None
    settings = session.load_settings(plugins, concurrency=concurrency, queues=served, **given)
    log.setup(as_json=settings.log_json, level=settings.log_level)
    for name in settings.plugins:
        # Looked at, not loaded: only children run what is in it.
        if name.endswith(".py") and not Path(name).is_file():
            raise PluginFailed(f"plugin {name}: no such file. Give the path of a .py file.")
    session.check_extras(settings)
    # A database that is away comes back, and the loops wait for it; the rest does not.
    with contextlib.suppress(DatabaseUnavailable):
        App(settings).close()
    return settings
