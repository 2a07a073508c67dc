"""`quire up`, `quire worker` and `quire scheduler`: the processes that do the work."""

from typing import TYPE_CHECKING, Annotated

import typer

from quire.cli import options

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

worker_app = typer.Typer(
    help="Run one worker until Ctrl-C.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def up(
    workers: Workers = 1,
    concurrency: Concurrency = None,
    queue: Queues = None,
    plugin: options.Plugins = None,
) -> None:
    """Run Quire on this machine until Ctrl-C.

    Starts workers and the scheduler, and restarts those that die. Ctrl-C lets running tasks end.
    """
    from quire.runtime import supervisor

    raise typer.Exit(supervisor.run(_started(concurrency, queue, plugin), workers=workers))


@worker_app.callback(invoke_without_command=True)
def worker(
    context: typer.Context,
    concurrency: Concurrency = None,
    queue: Queues = None,
    plugin: options.Plugins = None,
) -> None:
    """Run one worker until Ctrl-C.

    It claims tasks and runs each in a child process. Ctrl-C lets running tasks end.
    """
    if context.invoked_subcommand is not None:
        return
    from quire.runtime import worker as running

    raise typer.Exit(running.run(_started(concurrency, queue, plugin)))


def scheduler(plugin: options.Plugins = None) -> None:
    """Run the scheduler until Ctrl-C.

    It lifts tasks that waited long, prunes what is old, and cleans up after dead workers.
    """
    from quire.runtime import scheduler as running

    raise typer.Exit(running.run(_started(None, None, plugin)))


def _started(
    concurrency: int | None, queues: list[str] | None, plugins: list[str] | None
) -> "Settings":
    """Read the settings and begin to log."""
    from quire import log
    from quire.cli import opening

    served = tuple(queues) if queues else None
    settings = opening.chosen(plugins, concurrency=concurrency, queues=served)
    log.setup(as_json=settings.log_json, level=settings.log_level)
    return settings
