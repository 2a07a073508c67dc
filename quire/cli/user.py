"""`quire user`: users, their roles and sign-in links."""

from typing import Annotated

from quire import format
from quire.cli import console, options, session
from quire.control import access, sign_in

app = options.Group("Manage users, their roles and sign-in links.", no_args_is_help=True)
Name = Annotated[str, options.argument("NAME", "Name of the user.")]
OwnName = Annotated[str | None, options.argument("NAME", "Name of the user. Default: you.")]
_ROLES = (
    "viewer (read), member (also submit and change jobs) or admin (also manage users and tokens)"
)
Role = Annotated[str, options.argument("ROLE", f"One of {_ROLES}.")]
RoleOption = Annotated[str, options.option("ROLE", f"One of {_ROLES}.", "--role")]


@app.command()
def add(name: Name, role: RoleOption = "member", json: options.Json = False) -> None:
    """Add a user, or enable a disabled one."""
    with session.create_app() as opened:
        access.ensure_admin(opened.caller)
        made = access.create_user(opened.caller, name, role)
    shown = format.one_line(name, 60)
    how = f"Print a sign-in link with: quire user link {shown}"
    console.answer(made, f"user {shown} has the role {role}. {how}", json=json)


@app.command("list")
def listing(json: options.Json = False) -> None:
    """List the users of this tenant."""
    with session.open_app() as opened:
        found = access.list_users(opened.caller)
    if json:
        console.as_json({"items": found, "next": None})
    elif not found:
        console.say("No users yet. The first start of `quire up` makes you the admin.")
    else:
        drawn = console.table("USER", "ROLE", "STATE", "ADDED", "LAST SIGN-IN", wide="USER")
        for each in found:
            drawn.add_row(
                format.one_line(each["name"]),
                each["role"],
                "disabled" if each["disabled_at"] else "active",
                format.when(each["created_at"]),
                format.when(each["signed_in_at"]),
            )
        console.show(drawn)


@app.command("role")
def give_role(name: Name, role: Role, json: options.Json = False) -> None:
    """Change a user's role. It applies from their next request."""
    with session.open_app() as opened:
        changed = access.set_role(opened.caller, name, role)
    console.answer(changed, f"user {format.one_line(name, 60)} has the role {role}.", json=json)


@app.command()
def disable(name: Name, json: options.Json = False) -> None:
    """Disable a user. Their tokens, sessions and links stop working at once."""
    with session.open_app() as opened:
        changed = access.disable_user(opened.caller, name)
    shown = format.one_line(name, 60)
    said = f"user {shown} is disabled. Enable with: quire user add {shown}"
    console.answer(changed, said, json=json)


@app.command()
def link(name: OwnName = None, json: options.Json = False) -> None:
    """Print a one-time link that signs a user in to the dashboard. It works for 15 minutes."""
    with session.create_app() as opened:
        made = sign_in.sign_in_link(opened.caller, opened.user if name is None else name)
    host, port = opened.settings.api_host, opened.settings.api_port
    if host in ("", "0.0.0.0", "::"):  # noqa: S104
        host = "localhost"
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    made["url"] = f"http://{host}:{port}/sign-in/{made.pop('link')}"
    if json:
        console.as_json(made)
    else:
        console.say(made["url"])
        console.note(f"Signs {format.one_line(made['user'], 60)} in. Works once, for 15 minutes.")
