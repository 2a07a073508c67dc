"""Options and arguments that several commands share, and how their text is read."""

from collections.abc import Sequence
from typing import Annotated

import typer

from quire.errors import BadInput, NotFound

#: The largest id that both databases can hold.
LARGEST_ID = 2**63 - 1
#: The longest page of a listing.
LARGEST_PAGE = 1000


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


def document_id(text: str) -> int:
    """Read a document's id."""
    text = str(text)
    if not (text.isascii() and text.isdigit()):
        raise BadInput(
            f"document {text}: not a document id. Ids are whole numbers from 1; `quire documents` "
            "lists them."
        )
    if len(text) > 19 or not 1 <= int(text) <= LARGEST_ID:
        raise NotFound(f"document {text[:40]}: no such document. `quire documents` lists them.")
    return int(text)


def states(given: Sequence[str] | None) -> list[str] | None:
    """Check names of job states; None means any."""
    from quire.model.states import JobState

    return _states(given, list(JobState))


def document_states(given: Sequence[str] | None) -> list[str] | None:
    """Check names of document states; None means any."""
    from quire.model.states import DocumentState

    return _states(given, list(DocumentState))


def _states(given: Sequence[str] | None, known: Sequence[str]) -> list[str] | None:
    wanted = [part for text in given or () for part in text.split(",") if part]
    for each in wanted:
        if each not in known:
            raise BadInput(f"state {each!r}: not one of {', '.join(known)}.")
    return wanted or None


def cursor(text: str | None) -> int | None:
    """Read the cursor of a listing."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadInput(f"--cursor: {text[:40]!r} is not the `next` of an earlier page.")
    return int(text)


def limit(number: int) -> int:
    """Check how many items a listing shall have."""
    if not 1 <= number <= LARGEST_PAGE:
        raise BadInput(f"--limit: {number} is not between 1 and {LARGEST_PAGE:,}.")
    return number


def pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Read settings that are given as KEY=VALUE."""
    found: dict[str, str] = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise BadInput(f"{text!r}: not KEY=VALUE, as in chunk_tokens=200.")
        found[name.strip()] = value
    return found


JobId = Annotated[
    int,
    typer.Argument(parser=job_id, metavar="JOB", help="Id of the job."),
]
DocumentId = Annotated[
    int,
    typer.Argument(parser=document_id, metavar="DOCUMENT", help="Id of the document."),
]
Limit = Annotated[
    int, typer.Option(metavar="N", help=f"How many to list, at most {LARGEST_PAGE:,}.")
]
Cursor = Annotated[
    str | None, typer.Option(metavar="CURSOR", help="Go on where the last page ended.")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Setting of the pipeline; `quire corpus show` lists them. May be repeated.",
    ),
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
