"""`quire migrate` and `quire doctor`: the schema and the consistency of the database."""

from collections.abc import Iterator
from typing import Annotated

import typer

from quire import format
from quire.cli import console, options, session
from quire.control import doctor as examining
from quire.control import outages
from quire.control.ingest import check_source
from quire.errors import BadInput
from quire.fetch import source_credentials
from quire.fetch.blobs.backend import open_blobs
from quire.runtime.worker import liveness
from quire.sandbox import confine
from quire.store import open_database
from quire.store.db import migrate as migrations
from quire.store.db import urls

Wait = Annotated[
    float,
    options.option(
        "SECONDS", "How long to wait for workers that are too old for a migration.", min=0
    ),
]

#: Former options, kept only to name the command that replaced them.
OldTo = Annotated[str | None, typer.Option("--to", hidden=True)]
OldBlobs = Annotated[str | None, typer.Option("--blobs", hidden=True)]


def migrate(
    wait: Wait = 90.0, json: options.Json = False, to: OldTo = None, blobs: OldBlobs = None
) -> None:
    """Migrate the database schema to this version of Quire.

    Workers of an older version keep running if a migration allows it. Otherwise they are told to
    drain, and the migration waits for them.
    """
    if to is not None:
        raise BadInput("--to was renamed: run `quire transfer URL` instead. Nothing was changed.")
    if blobs is not None:
        raise BadInput(
            "--blobs moved: run `quire transfer --blobs URL` instead. Nothing was changed."
        )
    settings = session.load_settings()
    name = urls.without_password(settings.database)
    db = open_database(
        settings.database,
        synchronous=settings.sqlite_synchronous,
        lease_seconds=settings.lease_seconds,
    )
    try:
        applied = db.migrate(timeout=wait, alive=liveness.is_alive)
        with db.read() as conn:
            version = migrations.version(conn)
    finally:
        db.close()
    if json:
        console.as_json({"database": name, "applied": applied, "version": version})
    elif applied:
        numbers = ", ".join(map(str, applied))
        console.say(f"{name}: {format.count(len(applied), 'migration')} applied ({numbers}).")
    else:
        console.say(f"{name}: up to date (version {version}).")


Source = Annotated[
    str | None,
    options.option("URL", "Check whether this source can be listed and read, and nothing else."),
]

Deep = Annotated[bool, options.flag("Also verify the checksum of every stored file.", "--deep")]
Repair = Annotated[
    bool,
    options.flag(
        "First repair derived data (counters, text index, stale locks) and the home's modes.",
        "--repair",
    ),
]


def doctor(
    source: Source = None,
    deep: Deep = False,
    repair: Repair = False,
    json: options.Json = False,
) -> None:
    """Check that the stored data is consistent.

    Exits with 1 if it is not.
    """
    if source is not None:
        _examine_source(source, json)
        return
    with session.open_app() as opened:
        settings = opened.settings
        session.check_extras(settings)
        repaired = examining.repair_derived(opened.db, settings.for_children) if repair else {}
        report = examining.examine(
            opened.db,
            sweep_interval=settings.sweep_interval,
            blobs=open_blobs(settings.for_children),
            deep=deep,
            home=settings.home,
        )
        with opened.db.read() as conn:  # what keeps jobs from running; the data may be fine
            found = outages.listed(
                conn, None, now=opened.db.now(conn), max_silence=opened.db.lease_seconds
            )
    box = confine.described(settings.sandbox)
    buckets = source_credentials.described(settings.for_children)
    if json:
        about = {"repaired": repaired, "problems": found, "box": box, "buckets": buckets}
        console.as_json({**report.as_json(), **about})
    else:
        for told in filter(None, (box, buckets)):
            console.say(told)
        for problem in found:
            console.say(format.one_line(problem, 1000))
        for name, count in repaired.items():
            console.say(f"{name}: repaired in {format.count(count, 'place')}.")
        for line in lines(report):
            console.say(line)
    if not report.is_healthy:
        raise typer.Exit(1)


def _examine_source(source: str, json: bool) -> None:
    session.load_plugins()
    is_well, sentences = check_source(source, session.load_settings().for_children)
    if json:
        console.as_json({"source": source, "is_readable": is_well, "findings": sentences})
    else:
        for line in sentences:
            console.say(format.one_line(line, 1000))
    if not is_well:
        raise typer.Exit(1)


def lines(report: examining.Report) -> Iterator[str]:
    """Write a report as lines of text."""
    if report.is_healthy:
        yield f"All {report.checked} invariants hold."
    for each in report.violations:
        named = ", ".join(map(str, each.examples))
        places = format.count(each.count, "place")
        yield f"{each.name}: violated in {places} (for example {named}). {each.sentence}"
