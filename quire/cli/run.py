"""`quire up`, `quire api`, `quire worker` and `quire scheduler`: the processes of Quire."""

import os
import signal
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from quire.cli import console, options, processes, session
from quire.errors import BadInput, NotFound

if TYPE_CHECKING:
    from quire.settings import Settings

Concurrency = Annotated[
    int | None, options.option("N", "Child processes per worker. 0: one per core.")
]
Queues = Annotated[
    list[str] | None, options.option("NAME", "Queue to serve. Repeatable.", "--queue")
]
Workers = Annotated[int, options.option("N", "Number of workers.")]

MOST_WORKERS = 64

worker_app = options.Group("Run one worker until Ctrl-C.")


def up(
    workers: Workers = 1,
    concurrency: Concurrency = None,
    queue: Queues = None,
    plugin: options.Plugins = None,
    no_api: Annotated[
        bool, options.flag("Do not start the API and the dashboard.", "--no-api")
    ] = False,
) -> None:
    """Run Quire on this machine until Ctrl-C.

    Starts the API with the dashboard, workers and the scheduler, and restarts any that die.
    Ctrl-C lets running tasks finish.
    """
    if not 1 <= workers <= MOST_WORKERS:
        raise BadInput(f"--workers: {workers} is not between 1 and {MOST_WORKERS}.")
    settings = _settings(concurrency, queue, plugin)
    processes.supervise(settings, workers=workers, with_api=not no_api)


Host = Annotated[
    str | None, options.option("ADDRESS", "Address to listen on, instead of QUIRE_API_HOST.")
]
Port = Annotated[
    int | None,
    options.option("N", "Port to listen on, instead of QUIRE_API_PORT. 0: any free port."),
]


def api(host: Host = None, port: Port = None, plugin: options.Plugins = None) -> None:
    """Serve the API and the dashboard until Ctrl-C.

    You can restart it at any time: jobs are not affected, and open pages reconnect.
    """
    _start("api", _settings(None, None, plugin, api_host=host, api_port=port))


@worker_app.callback(invoke_without_command=True)
def worker(
    context: typer.Context,
    concurrency: Concurrency = None,
    queue: Queues = None,
    plugin: options.Plugins = None,
) -> None:
    """Run one worker until Ctrl-C.

    It claims tasks and runs each in a child process. Ctrl-C lets running tasks finish. With
    QUIRE_BROKER_URL it is also a Celery worker and claims tasks when a message arrives.
    """
    if context.invoked_subcommand is not None:
        return
    _start("worker", _settings(concurrency, queue, plugin))


WorkerIds = Annotated[
    list[str] | None, options.argument("WORKER", "Only these workers. `quire status` lists them.")
]


@worker_app.command()
def drain(worker: WorkerIds = None) -> None:
    """Let workers on this machine finish their running tasks and exit.

    `quire up` restarts its workers: stop `quire up` itself instead.
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
            console.say(f"worker {row.id} (pid {row.pid}) exits when its tasks have finished.")
        else:
            console.say(f"worker {row.id} is dead, or runs on another machine ({row.host}).")
    if not wanted:
        console.say("No worker is running.")


def scheduler(plugin: options.Plugins = None) -> None:
    """Run the scheduler until Ctrl-C.

    It raises the priority of tasks that have waited long, and deletes old jobs and data. With
    QUIRE_BROKER_URL it also sends the messages that tell workers to claim.
    """
    _start("scheduler", _settings(None, None, plugin))


def _start(role: str, settings: "Settings") -> NoReturn:
    processes.check_database(settings)
    raise typer.Exit(processes.start(role, settings))


def _settings(
    concurrency: int | None, queues: list[str] | None, plugins: list[str] | None, **given: Any
) -> "Settings":
    served = tuple(queues) if queues else None
    return processes.prepared(
        session.load_settings(plugins, concurrency=concurrency, queues=served, **given)
    )
