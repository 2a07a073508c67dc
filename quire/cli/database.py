"""`quire migrate` and `quire doctor`: the schema, and whether what is stored is consistent."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from quire.cli import console, options, words

if TYPE_CHECKING:
    from quire.control.doctor import Report


def migrate(json: options.Json = False) -> None:
    """Bring the database's schema up to date."""
    from quire.cli import opening, places
    from quire.store import migrate as migrations
    from quire.store.engine import Database

    settings = opening.chosen()
    name = places.without_password(settings.url)
    db = Database.open(settings.url, synchronous=settings.sqlite_synchronous)
    try:
        applied = db.migrate()
    finally:
        db.close()
    version = migrations.known()[-1]
    if json:
        console.as_json({"database": name, "applied": applied, "version": version})
    elif applied:
        numbers = ", ".join(map(str, applied))
        console.say(f"{name}: {words.count(len(applied), 'migration')} applied ({numbers}).")
    else:
        console.say(f"{name}: up to date (version {version}).")


def doctor(json: options.Json = False) -> None:
    """Check that what is stored is consistent.

    Exits with 1 where it is not.
    """
    from quire.cli import opening
    from quire.control import doctor as examining

    with opening.reading() as opened:
        report = examining.examine(opened.db, sweep_interval=opened.settings.sweep_interval)
    if json:
        console.as_json(examining.as_json(report))
    else:
        for line in lines(report):
            console.say(line)
    if not report.is_healthy:
        raise typer.Exit(1)


def lines(report: "Report") -> Iterator[str]:
    """Write a report for people."""
    if report.is_healthy:
        yield f"all {report.checked} invariants hold."
    for each in report.violations:
        named = ", ".join(map(str, each.examples))
        places = words.count(each.count, "place")
        yield f"{each.name}: broken in {places} (for example {named}). {each.sentence}"
