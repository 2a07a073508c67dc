"""`quire token`: what programs sign in to the API with."""

from typing import Annotated

import typer

from quire import format
from quire.cli import console, options, session
from quire.errors import BadInput, NotFound

app = options.Group(
    help="Make, list and revoke tokens for the API.",
    no_args_is_help=True,
)


def token_id(text: str) -> int:
    """Read a token's id."""
    text = str(text)
    if not (text.isascii() and text.isdigit()):
        raise BadInput(
            f"token {text[:40]}: not a token id. Ids are whole numbers from 1; `quire token list` "
            "lists them."
        )
    if len(text) > 19 or not 1 <= int(text) <= options.LARGEST_ID:
        raise NotFound(f"token {text[:40]}: no such token. `quire token list` lists them.")
    return int(text)


Name = Annotated[str, typer.Argument(metavar="NAME", help="What the token is for.")]
TokenId = Annotated[int, typer.Argument(parser=token_id, metavar="TOKEN", help="Id of the token.")]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="What it may do: read, write (reads too) or admin (both too); all that its user may "
        "do, if none is named. May be repeated.",
    ),
]
Days = Annotated[
    float | None,
    typer.Option(metavar="N", help="Days until it expires; without, it does not expire."),
]
Whose = Annotated[
    str | None, typer.Option("--user", metavar="USER", help="Whose token; yours if none is named.")
]
Only = Annotated[
    str | None, typer.Option("--user", metavar="USER", help="Only tokens of this user.")
]


@app.command()
def create(
    name: Name,
    scope: Scopes = None,
    days: Days = None,
    user: Whose = None,
    json: options.Json = False,
) -> None:
    """Make a token and print it; it is not shown again."""
    from quire.control import access

    with session.create_app() as opened:
        made = access.create_token(opened.caller, name, scope, days, user=user)
    if json:
        console.as_json(made)
        return
    console.say(made["token"])
    ends = f"expires {format.when(made['expires_at'])}" if made["expires_at"] else "does not expire"
    console.note(
        f"token {made['id']} ({format.one_line(name, 60)}) "
        f"of {format.one_line(made['user'], 60)}: "
        f"may {', '.join(made['scopes'])}; {ends}. Keep it now, it is not shown again. "
        "Send it as `Authorization: Bearer TOKEN`, or set QUIRE_TOKEN."
    )


@app.command("list")
def listing(user: Only = None, json: options.Json = False) -> None:
    """List the tokens of this tenant, the latest first."""
    from quire.control import access

    with session.open_app() as opened:
        found = access.list_tokens(opened.caller, user=user)
    if json:
        console.as_json({"items": found, "next": None})
    elif not found:
        console.say("No tokens yet. Try: quire token create NAME")
    else:
        drawn = console.table(
            *("TOKEN", "USER", "MAY", "STATE", "MADE", "LAST USED", "EXPIRES", "NAME"),
            right=("TOKEN",),
            wide="NAME",
        )
        for each in found:
            drawn.add_row(
                str(each["id"]),
                format.one_line(each["user"], 30),
                each["scopes"][-1],
                each["state"],
                format.when(each["created_at"]),
                format.when(each["last_used_at"]),
                format.when(each["expires_at"]),
                format.one_line(each["name"]),
            )
        console.show(drawn)


@app.command()
def revoke(token: TokenId, json: options.Json = False) -> None:
    """Revoke a token: whoever has it is not let in any more."""
    from quire.control import access

    with session.open_app() as opened:
        gone = access.revoke_token(opened.caller, token)
    if json:
        console.as_json(gone)
    else:
        console.say(f"token {token} ({format.one_line(gone['name'], 60)}) revoked.")
