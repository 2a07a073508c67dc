"""`quire health`: whether the processes of this home on this machine are well, for supervisors."""

from typing import Annotated

import typer

from quire.cli import console, options
from quire.errors import BadInput

Role = Annotated[
    str | None,
    typer.Argument(metavar="ROLE", help="api, worker or scheduler; if not named, all that run."),
]


def health(role: Role = None, json: options.Json = False) -> None:
    """Say whether Quire's processes on this machine are well.

    Exits with 1 where one is not, or none runs. For health checks of containers and the like.
    """
    from quire.cli import session
    from quire.runtime.worker import health as checks

    if role is not None and role not in checks.ROLES:
        raise BadInput(f"role {role!r}: not one of {', '.join(checks.ROLES)}.")
    found = checks.check(session.chosen(), role)
    if json:
        names = ("role", "healthy", "detail")
        console.as_json({"items": [dict(zip(names, each, strict=True)) for each in found]})
    else:
        for each in found:
            console.say(
                f"{each.role}: {'healthy' if each.is_healthy else 'UNHEALTHY'}; {each.detail}"
            )
    if not all(each.is_healthy for each in found):
        raise typer.Exit(1)
