"""`quire pause` and `quire unpause`: hold back all jobs of a kind."""

from typing import Annotated

import typer

from quire.cli import console, options, session

Kind = Annotated[str, typer.Argument(metavar="KIND", help="Kind of job.")]


def pause(kind: Kind, plugin: options.Plugins = None) -> None:
    """Start no more tasks of a kind; running ones go on."""
    from quire.control import jobs

    with session.create_app(plugin) as app:
        changed = jobs.pause(app.caller, kind)
    console.say(
        f"{kind} is paused. Go on with: quire unpause {kind}"
        if changed
        else f"{kind} was paused already."
    )


def unpause(kind: Kind, plugin: options.Plugins = None) -> None:
    """Let tasks of a paused kind start again."""
    from quire.control import jobs

    with session.create_app(plugin) as app:
        changed = jobs.unpause(app.caller, kind)
    console.say(f"{kind} runs again." if changed else f"{kind} was not paused.")
