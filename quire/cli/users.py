"""`quire user`, `quire token` and `quire owner`: users, their tokens and their share of workers."""

from typing import Annotated

from quire import format
from quire.cli import console, options, session
from quire.control import access, owners, queries, sign_in

users = options.Group("Manage users, their roles and sign-in links.", no_args_is_help=True)
tokens = options.Group("Create, list and revoke API tokens.", no_args_is_help=True)
job_owners = options.Group(
    "List job owners; set their policy, weight and limit.", no_args_is_help=True
)

Name = Annotated[str, options.argument("NAME", "Name of the user.")]
OwnName = Annotated[str | None, options.argument("NAME", "Name of the user. Default: you.")]
_ROLES = (
    "viewer (read), member (also submit and change jobs), admin (also manage users and tokens) "
    "or instance-admin (also operate what all tenants share)"
)
SessionIds = Annotated[
    list[int],
    options.argument(
        "SESSION", "Ids of sessions.", parser=options.id_of("session", "quire user sessions")
    ),
]
Role = Annotated[str, options.argument("ROLE", f"One of {_ROLES}.")]
RoleOption = Annotated[str, options.option("ROLE", f"One of {_ROLES}.", "--role")]


@users.command()
def add(name: Name, role: RoleOption = "member", json: options.Json = False) -> None:
    """Add a user, or enable a disabled one."""
    with session.create_app() as opened:
        access.ensure_admin(opened.caller)
        made = access.create_user(opened.caller, name, role)
    shown = format.one_line(name, 60)
    how = f"Print a sign-in link with: quire user link {shown}"
    console.answer(made, f"user {shown} has the role {role}. {how}", json=json)


@users.command("list")
def list_users(json: options.Json = False) -> None:
    """List the users of this tenant."""
    with session.open_app() as opened:
        found = access.list_users(opened.caller)
    console.listing(
        found,
        lambda each: {
            "USER": format.one_line(each["name"]),
            "ROLE": each["role"],
            "STATE": "disabled" if each["disabled_at"] else "active",
            "ADDED": format.when(each["created_at"]),
            "LAST SIGN-IN": format.when(each["signed_in_at"]),
        },
        wide="USER",
        json=json,
        empty="No users yet. The first start of `quire up` makes you the admin.",
    )


@users.command("role")
def give_role(name: Name, role: Role, json: options.Json = False) -> None:
    """Change a user's role. It applies from their next request."""
    with session.open_app() as opened:
        changed = access.set_role(opened.caller, name, role)
    console.answer(changed, f"user {format.one_line(name, 60)} has the role {role}.", json=json)


@users.command()
def disable(name: Name, json: options.Json = False) -> None:
    """Disable a user. Their tokens, sessions and links stop working at once."""
    with session.open_app() as opened:
        changed = access.disable_user(opened.caller, name)
    shown = format.one_line(name, 60)
    said = f"user {shown} is disabled. Enable with: quire user add {shown}"
    console.answer(changed, said, json=json)


@users.command()
def link(name: OwnName = None, json: options.Json = False) -> None:
    """Print a one-time link that signs a user in to the dashboard. It works for 15 minutes."""
    with session.create_app() as opened:
        made = sign_in.sign_in_link(opened.caller, opened.user if name is None else name)
    host, port = opened.settings.api_host, opened.settings.api_port
    if host in ("", "0.0.0.0", "::"):  # noqa: S104
        host = "localhost"
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    base = opened.settings.public_url.rstrip("/") or f"http://{host}:{port}"
    made["url"] = f"{base}/sign-in/{made.pop('link')}"
    if json:
        console.as_json(made)
    else:
        console.say(made["url"])
        console.note(f"Signs {format.one_line(made['user'], 60)} in. Works once, for 15 minutes.")


@users.command("sessions")
def list_sessions(json: options.Json = False) -> None:
    """List the sessions of the dashboard, latest first."""
    with session.open_app() as opened:
        found = access.list_sessions(opened.caller)
    console.listing(
        found,
        lambda each: {
            "SESSION": str(each["id"]),
            "USER": format.one_line(each["user"], 60),
            "ADDRESS": each["address"] or "",
            "SIGNED IN": format.when(each["created_at"]),
            "LAST SEEN": format.when(each["last_seen_at"]),
            "EXPIRES": format.when(each["expires_at"]),
        },
        right=("SESSION",),
        json=json,
        empty="No sessions. `quire user link` prints a link that begins one.",
    )


@users.command("sign-out")
def sign_out(sessions: SessionIds, json: options.Json = False) -> None:
    """End sessions of the dashboard. Their next requests are not signed in."""
    with session.open_app() as opened:
        ended = [access.end_session(opened.caller, each) for each in sessions]
    console.answer({"items": ended}, f"{format.count(len(ended), 'session')} ended.", json=json)


TokenName = Annotated[str, options.argument("NAME", "Name of the token, to recognise it by.")]
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
Days = Annotated[float | None, options.option("N", "Days until it expires. Default: 90. 0: never.")]
Whose = Annotated[str | None, options.option("USER", "User of the token. Default: you.", "--user")]
Corpus = Annotated[
    str | None,
    options.option(
        "CORPUS", "The only corpus that it reads, searches and ingests into.", "--corpus"
    ),
]
Only = Annotated[str | None, options.option("USER", "Only tokens of this user.", "--user")]


@tokens.command()
def create(
    name: TokenName,
    scope: Scopes = None,
    days: Days = None,
    user: Whose = None,
    corpus: Corpus = None,
    json: options.Json = False,
) -> None:
    """Create a token and print it. It is not shown again."""
    with session.create_app() as opened:
        made = access.create_token(opened.caller, name, scope, days, user=user, corpus=corpus)
    if json:
        console.as_json(made)
        return
    console.say(made["token"])
    ends = f"expires {format.when(made['expires_at'])}" if made["expires_at"] else "does not expire"
    only = f"; corpus {format.one_line(made['corpus'], 60)} only" if made["corpus"] else ""
    console.note(
        f"token {made['id']} ({format.one_line(name, 60)}) "
        f"of {format.one_line(made['user'], 60)}: "
        f"scopes {', '.join(made['scopes'])}{only}; {ends}. Copy it now: it is not shown again. "
        "Send it as `Authorization: Bearer TOKEN`, or set QUIRE_TOKEN."
    )


@tokens.command("list")
def list_tokens(user: Only = None, json: options.Json = False) -> None:
    """List the tokens of this tenant, newest first."""
    with session.open_app() as opened:
        found = access.list_tokens(opened.caller, user=user)
    console.listing(
        found,
        lambda each: {
            "TOKEN": str(each["id"]),
            "USER": format.one_line(each["user"], 30),
            "SCOPE": each["scopes"][-1],
            "CORPUS": format.one_line(each["corpus"] or "all", 30),
            "STATE": each["state"],
            "CREATED": format.when(each["created_at"]),
            "LAST USED": format.when(each["last_used_at"]),
            "EXPIRES": format.when(each["expires_at"]),
            "NAME": format.one_line(each["name"]),
        },
        right=("TOKEN",),
        wide="NAME",
        json=json,
        empty="No tokens yet. Try: quire token create NAME",
    )


@tokens.command()
def revoke(token: TokenId, json: options.Json = False) -> None:
    """Revoke a token. It stops working at once."""
    with session.open_app() as opened:
        gone = access.revoke_token(opened.caller, token)
    said = f"token {token} ({format.one_line(gone['name'], 60)}) revoked."
    console.answer(gone, said, json=json)


User = Annotated[str, options.argument("USER", "Name of the user.")]
Policy = Annotated[
    str | None,
    options.option(
        "POLICY",
        "What happens to a second active job of the user: all (both run), queue (it waits), "
        "replace (the first is stopped), reject (it is refused), or default (QUIRE_USER_POLICY).",
    ),
]
Weight = Annotated[
    float | None, options.option("N", "Share relative to other owners: 2 gets twice as much as 1.")
]
MaxRunning = Annotated[
    int | None,
    options.option("N", "Maximum number of the user's tasks that run at once. 0: no limit."),
]


@job_owners.command("list")
def list_owners(json: options.Json = False) -> None:
    """List the owners of this tenant."""
    with session.open_app() as opened:
        found = [owner._asdict() for owner in queries.owners(opened.caller)]
        policy = opened.settings.user_policy
    console.listing(
        found,
        lambda owner: {
            "USER": format.one_line(owner["user"], 60),
            "POLICY": owner["policy"] or f"{policy} (default)",
            "WEIGHT": f"{owner['weight']:g}",
            "MAX RUNNING": "no limit" if owner["max_running"] is None else owner["max_running"],
        },
        right=("WEIGHT", "MAX RUNNING"),
        json=json,
        empty="No owners yet. A user becomes one with their first job.",
    )


@job_owners.command("set")
def set_owner(
    user: User,
    policy: Policy = None,
    weight: Weight = None,
    max_running: MaxRunning = None,
    json: options.Json = False,
) -> None:
    """Set an owner's policy, weight or limit. Options left out do not change."""
    with session.create_app() as opened:
        owner = owners.change(
            opened.caller, user, policy=policy, weight=weight, max_running=max_running
        )
    cap = "no limit" if owner.max_running is None else f"at most {owner.max_running:,} running"
    said = f"{user}: policy {owner.policy or 'default'}, weight {owner.weight:g}, {cap}."
    console.answer(owner._asdict(), said, json=json)
