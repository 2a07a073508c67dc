"""All commands, in the order in which `quire --help` lists them."""

import os
from typing import Annotated

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

ORDER = (
    "up", "api", "worker", "scheduler", "ingest", "search", "documents", "document", "corpus",
    "submit", "status", "jobs", "job", "logs", "pause", "unpause", "owner", "user", "token",
    "migrate", "transfer", "doctor", "health", "deploy", "settings", "demo", "version",
)  # fmt: skip


class InOrder(TyperGroup):
    """Lists commands as people need them; Typer would put the groups last."""

    def list_commands(self, context: typer.Context) -> list[str]:  # type: ignore[override]
        """List the names of the commands."""
        return list(ORDER)


app = options.Group(
    cls=InOrder,
    help="Quire takes in documents and finds what is in them; its jobs survive kill -9.\n\n"
    "Begin with `quire ingest FOLDER`, then `quire search WORDS`. With `quire up` in another "
    "terminal the work goes on in the background. Exit codes: 0 done, 1 some work failed, "
    "2 refused or misused.",
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
    """Take the options that come before a command."""
    from quire.runtime.signals import PARENT_FD

    if PARENT_FD not in os.environ:  # else whoever started this one has said it
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
