"""All commands, in the order of `quire --help`."""

import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from quire.cli import (
    configuration,
    corpus,
    database,
    demo,
    deploy,
    document,
    documents,
    job,
    jobs,
    kinds,
    logs,
    options,
    owner,
    run,
    search,
    status,
    submit,
    token,
    transfer,
    user,
)
from quire.cli.ingest import command
from quire.errors import BadInput

ORDER = (
    "up", "api", "worker", "scheduler", "ingest", "search", "documents", "document", "corpus",
    "submit", "status", "jobs", "job", "logs", "pause", "unpause", "owner", "user", "token",
    "migrate", "transfer", "doctor", "health", "deploy", "settings", "demo", "version",
)  # fmt: skip


class InOrder(TyperGroup):
    """Lists commands in our order; Typer would put the groups last."""

    def list_commands(self, context: typer.Context) -> list[str]:  # type: ignore[override]
        """List the names of the commands."""
        return list(ORDER)

    def resolve_command(self, context: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """Find the command; a former one is named with what replaced it."""
        if args[0] == "bench":
            raise BadInput(
                "quire bench is gone. Run `python -m benchmarks` in a checkout of Quire."
            )
        return super().resolve_command(context, args)


app = options.Group(
    cls=InOrder,
    help="Quire ingests documents, makes them searchable, and runs jobs that survive kill -9.\n\n"
    "Start with `quire ingest FOLDER`, then `quire search WORDS`. Run `quire up` in another "
    "terminal for workers in the background and a dashboard. Exit codes: 0 success, 1 some work "
    "failed, 2 invalid or refused request.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        configuration.version()
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
]


@app.callback()
def root(version: Version = False) -> None:
    """Handle the options that come before a command."""
    from quire.runtime.signals import PARENT_FD

    if PARENT_FD not in os.environ:  # otherwise the parent process has printed it
        configuration.warn_of_unknown()


for _command in (
    *(command.ingest, search.search, documents.documents),
    *(
        run.up,
        run.api,
        run.scheduler,
        submit.submit,
        status.status,
        logs.logs,
        kinds.pause,
        kinds.unpause,
    ),
    *(
        database.migrate,
        transfer.transfer,
        database.doctor,
        configuration.settings,
        configuration.version,
    ),
    *(demo.demo, status.health),
):
    app.command()(_command)
app.add_typer(run.worker_app, name="worker")
app.add_typer(jobs.app, name="jobs")
app.add_typer(job.app, name="job")
app.add_typer(document.app, name="document")
app.add_typer(corpus.app, name="corpus")
app.add_typer(owner.app, name="owner")
app.add_typer(user.app, name="user")
app.add_typer(token.app, name="token")
app.add_typer(deploy.app, name="deploy")
