"""`quire token`: API tokens."""

from typing import Annotated

from quire import format
from quire.cli import console, options, session
from quire.control import access

app = options.Group("Create, list and revoke API tokens.", no_args_is_help=True)

Name = Annotated[str, options.argument("NAME", "Name of the token, to recognise it by.")]
TokenId = Annotated[
    int,
    options.argument(
        "TOKEN", "Id of the token.", parser=options.id_of("token", "quire token list")
    ),
]
Scopes = Annotated[
    list[str] | None,
    options.option(
        "SCOPE",
        "Scope: read, write (includes read) or admin (includes both). Default: everything its "
        "user may do. Repeatable.",
        "--scope",
    ),
]
Days = Annotated[float | None, options.option("N", "Days until it expires. Default: never.")]
Whose = Annotated[str | None, options.option("USER", "User of the token. Default: you.", "--user")]
Only = Annotated[str | None, options.option("USER", "Only tokens of this user.", "--user")]


@app.command()
def create(
    name: Name,
    scope: Scopes = None,
    days: Days = None,
    user: Whose = None,
    json: options.Json = False,
) -> None:
    """Create a token and print it. It is not shown again."""
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
        f"scopes {', '.join(made['scopes'])}; {ends}. Copy it now: it is not shown again. "
        "Send it as `Authorization: Bearer TOKEN`, or set QUIRE_TOKEN."
    )


@app.command("list")
def listing(user: Only = None, json: options.Json = False) -> None:
    """List the tokens of this tenant, newest first."""
    with session.open_app() as opened:
        found = access.list_tokens(opened.caller, user=user)
    if json:
        console.as_json({"items": found, "next": None})
    elif not found:
        console.say("No tokens yet. Try: quire token create NAME")
    else:
        drawn = console.table(
            *("TOKEN", "USER", "SCOPE", "STATE", "CREATED", "LAST USED", "EXPIRES", "NAME"),
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
    """Revoke a token. It stops working at once."""
    with session.open_app() as opened:
        gone = access.revoke_token(opened.caller, token)
    said = f"token {token} ({format.one_line(gone['name'], 60)}) revoked."
    console.answer(gone, said, json=json)
