"""`quire pause` and `quire unpause`: stop starting tasks of a job kind."""

from typing import Annotated

from quire.cli import console, options, session
from quire.control import jobs

Kind = Annotated[str, options.argument("KIND", "Job kind.")]


def pause(kind: Kind, plugin: options.Plugins = None) -> None:
    """Pause a job kind. Running tasks finish, no new ones start."""
    with session.create_app(plugin) as app:
        changed = jobs.pause(app.caller, kind)
    console.say(
        f"{kind} is paused. Running tasks finish. Continue with: quire unpause {kind}"
        if changed
        else f"{kind} is already paused."
    )


def unpause(kind: Kind, plugin: options.Plugins = None) -> None:
    """Unpause a job kind: its tasks start again."""
    with session.create_app(plugin) as app:
        changed = jobs.unpause(app.caller, kind)
    console.say(f"{kind} is active again." if changed else f"{kind} is not paused.")
