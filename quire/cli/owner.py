"""`quire owner`: owners of jobs, and the share of the workers that each may use."""

from typing import Annotated

from quire import format
from quire.cli import console, options, session
from quire.control import owners, queries

app = options.Group("List job owners; set their policy, weight and limit.", no_args_is_help=True)

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


@app.command("list")
def list_(json: options.Json = False) -> None:
    """List the owners of this tenant."""
    with session.open_app() as opened:
        found = queries.owners(opened.caller)
        policy = opened.settings.user_policy
    if json:
        console.as_json({"items": [owner._asdict() for owner in found], "next": None})
        return
    if not found:
        console.say("No owners yet. A user becomes one with their first job.")
        return
    drawn = console.table(
        "USER", "POLICY", "WEIGHT", "MAX RUNNING", right=("WEIGHT", "MAX RUNNING")
    )
    for owner in found:
        cap = "no limit" if owner.max_running is None else f"{owner.max_running:,}"
        named = owner.policy or f"{policy} (default)"
        drawn.add_row(format.one_line(owner.user, 60), named, f"{owner.weight:g}", cap)
    console.show(drawn)


@app.command("set")
def set_(
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
