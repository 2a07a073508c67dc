"""`quire source`: what the users of a tenant may ingest over the API and the dashboard."""

from typing import Annotated

from quire import format
from quire.cli import console, options, session
from quire.control import sources

app = options.Group(
    "Grant sources to a tenant's users of the API.",
    no_args_is_help=True,
)

Place = Annotated[
    str,
    options.argument(
        "PLACE",
        "A folder, s3://BUCKET/PREFIX, gdrive:ID, host:NAME, or SCHEME:REST of a plugin's source. "
        "Everything below it is included.",
    ),
]


@app.command()
def allow(place: Place, json: options.Json = False) -> None:
    """Let users of this tenant (QUIRE_TENANT) ingest a place over the API. Audited."""
    with session.create_app() as opened:
        made = sources.allow(opened.caller, place)
        tenant = opened.settings.tenant
    said = f"{made['place']}: granted to the tenant {format.one_line(tenant, 60)}."
    console.answer(made, said, json=json)


@app.command("list")
def list_grants(json: options.Json = False) -> None:
    """List what users of this tenant may ingest beside uploads and public URLs."""
    with session.open_app() as opened:
        found = sources.list_grants(opened.caller)
    console.listing(
        found,
        lambda each: {
            "PLACE": format.one_line(each["place"], 200),
            "GRANTED": format.when(each["created_at"]),
            "BY": format.one_line(each["created_by"], 30),
        },
        wide="PLACE",
        json=json,
        empty="No grants: users of the API may ingest uploads and public URLs only.",
    )


@app.command()
def revoke(place: Place, json: options.Json = False) -> None:
    """Take a grant back. Workers open nothing there any more, also for queued jobs."""
    with session.open_app() as opened:
        gone = sources.revoke(opened.caller, place)
    console.answer(gone, f"{gone['place']}: no longer granted.", json=json)
