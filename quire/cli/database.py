"""`quire migrate` and `quire doctor`: the schema, and whether what is stored is consistent."""

import typer

from quire.cli import console, options, words


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
        found = examining.examine(opened.db)
    if json:
        console.as_json({"violations": [each._asdict() for each in found]})
    elif not found:
        console.say(f"all {len(examining.INVARIANTS)} invariants hold.")
    for each in [] if json else found:
        ids = ", ".join(map(str, each.example_ids))
        console.say(f"{each.name}: {each.count:,} violated, for example {ids}. {each.sentence}")
    if found:
        raise typer.Exit(1)
