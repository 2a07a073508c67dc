"""Options and arguments that several commands share, and how their text is read."""

from collections.abc import Sequence
from typing import Annotated

import typer

from quire.errors import BadInput, NotFound

#: The largest id that both databases can hold.
LARGEST_ID = 2**63 - 1


def job_id(text: str) -> int:
    """Read a job's id."""
    text = str(text)
    if not (text.isascii() and text.isdigit()):
        raise BadInput(
            f"job {text}: not a job id. Ids are whole numbers from 1; `quire jobs` lists them."
        )
    # Counted before it is read: Python refuses to read thousands of digits.
    if len(text) > 19 or not 1 <= int(text) <= LARGEST_ID:
        raise NotFound(f"job {text[:40]}: no such job. `quire jobs` lists them.")
    return int(text)


def states(given: Sequence[str] | None) -> list[str] | None:
    """Check names of job states; None means any."""
    from quire.model.states import JobState

    wanted = [part for text in given or () for part in text.split(",") if part]
    for each in wanted:
        if each not in list(JobState):
            raise BadInput(f"state {each!r}: not one of {', '.join(JobState)}.")
    return wanted or None


JobId = Annotated[
    int,
    typer.Argument(parser=job_id, metavar="JOB", help="Id of the job."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        help="Python file or module with job kinds, besides QUIRE_PLUGINS; may be repeated.",
    ),
]

States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="Only jobs in this state: pending, running, completed, failed, stopped or cancelled; "
        "may be repeated.",
    ),
]
Kind = Annotated[str | None, typer.Option("--kind", metavar="KIND", help="Only jobs of this kind.")]
Platform = Annotated[
    str | None, typer.Option("--platform", metavar="NAME", help="Only jobs of this platform.")
]
Account = Annotated[
    str | None, typer.Option("--account", metavar="NAME", help="Only jobs of this account.")
]
User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Only jobs of this user.")]
