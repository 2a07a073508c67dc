"""All commands, in the order of `quire --help`.

The module of a command is imported when the command runs: a start loads one module, not twenty.
"""

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_group

from quire.cli import options
from quire.errors import BadInput

#: Where each command is, and what `quire --help` says about it.
COMMANDS = {
    "up": ("run:up", "Run Quire on this machine until Ctrl-C."),
    "api": ("run:api", "Serve the API and the dashboard until Ctrl-C."),
    "worker": ("run:worker_app", "Run one worker until Ctrl-C."),
    "scheduler": ("run:scheduler", "Run the scheduler until Ctrl-C."),
    "ingest": ("ingest.command:ingest", "Ingest files, folders, URLs and buckets."),
    "search": ("search:search", "Search the documents; the best pages come first."),
    "documents": ("documents:listing", "List documents, newest first."),
    "document": ("documents:app", "Show, explain, save, reindex or delete one document."),
    "corpus": ("corpus:app", "Create, list, show, change, reindex or delete corpora."),
    "submit": ("submit:submit", "Submit one job, or many."),
    "status": ("status:status", "Show counts of jobs, tasks and documents, and the workers."),
    "jobs": ("jobs:app", "List jobs, or change all that match."),
    "job": ("job:app", "Show, explain or change one job."),
    "logs": ("logs:logs", "Print the events of a job, oldest first."),
    "pause": ("jobs:pause", "Pause a job kind."),
    "unpause": ("jobs:unpause", "Unpause a job kind: its tasks start again."),
    "owner": ("users:job_owners", "List job owners; set their policy, weight and limit."),
    "user": ("users:users", "Manage users, their roles and sign-in links."),
    "token": ("users:tokens", "Create, list and revoke API tokens."),
    "tenant": ("tenants:app", "List tenants; set their limits."),
    "source": ("source:app", "Grant sources to a tenant's users of the API."),
    "secret": ("secret:app", "Manage the key that seals secrets of source URLs."),
    "migrate": ("database:migrate", "Migrate the database schema to this version of Quire."),
    "transfer": ("transfer:transfer", "Move to PostgreSQL, or stored files to a bucket."),
    "doctor": ("database:doctor", "Check that the stored data is consistent."),
    "health": ("status:health", "Check the health of Quire's processes on this machine."),
    "deploy": ("deploy:app", "Write files that run Quire on servers."),
    "settings": (
        "configuration:settings",
        "List every setting with its value and where it comes from.",
    ),
    "demo": ("demo:demo", "Create sample documents, ingest them and search them."),
    "version": ("configuration:version", "Print the versions of Quire, Python and SQLite."),
}


class _Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is looked up."""

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = COMMANDS[name][0].partition(":")
        found = getattr(import_module(f"quire.cli.{module}"), attribute)
        group = options.Group(help="")
        if isinstance(found, typer.Typer):
            group.add_typer(found, name=name)
        else:
            group.command(name)(found)
        return get_group(group).commands[name]


class LazyGroup(options.Verbs):
    """Knows its commands without importing them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()  # type: ignore[assignment]  # nobody adds to it

    def format_commands(self, context: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])

    def resolve_command(self, context: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """Find the command; a former one is named with what replaced it."""
        if args[0] == "bench":
            raise BadInput(
                "quire bench is gone. Run `python -m benchmarks` in a checkout of Quire."
            )
        return super().resolve_command(context, args)


app = options.Group(
    cls=LazyGroup,
    help="Quire ingests documents, makes them searchable, and runs jobs that survive kill -9.\n\n"
    "Start with `quire ingest FOLDER`, then `quire search WORDS`. Run `quire up` in another "
    "terminal for workers in the background and a dashboard. Exit codes: 0 success, 1 some work "
    "failed, 2 invalid or refused request.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from quire.cli import configuration

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
    from quire.cli import configuration

    if "QUIRE_PARENT_FD" not in os.environ:  # otherwise the parent process has printed it
        configuration.warn_of_unknown()
