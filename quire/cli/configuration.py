"""`quire settings` and `quire version`."""

from quire import format
from quire.cli import console, options, session


def settings(json: options.Json = False) -> None:
    """List every setting with its value and where it comes from."""
    from quire.control import shown_settings as listing

    items = listing.listed(session.load_settings())
    if json:
        console.as_json({"items": items, "next": None})
        return
    for topic in dict.fromkeys(each["topic"] for each in items):
        console.say(topic)
        rows = [
            {
                "SETTING": each["name"],
                "VALUE": format.setting(each["value"]),
                "FROM": each["from"],
                "WHAT IT DOES": each["sentence"],
            }
            for each in items
            if each["topic"] == topic
        ]
        drawn = console.table(rows, wide="WHAT IT DOES")
        for column in (drawn.columns[1], drawn.columns[3]):
            column.overflow, column.no_wrap = "fold", False
        console.show(drawn)
        console.say()


def warn_of_unknown() -> None:
    """Name QUIRE_* variables that are not settings: a typo would otherwise go unnoticed."""
    from quire.settings import unknown

    for name, nearest in unknown():
        hint = f" Did you mean {nearest}?" if nearest else " `quire settings` lists them."
        console.note(f"{name}: no such setting; ignored.{hint}")


def version(json: options.Json = False) -> None:
    """Print the versions of Quire, Python and SQLite."""
    found = versions()
    if json:
        console.as_json(found)
    else:
        console.say(f"quire {found['quire']} (Python {found['python']}, SQLite {found['sqlite']})")


def versions() -> dict[str, str]:
    """Return the versions of Quire, Python and SQLite."""
    import platform

    import quire
    from quire.store.db.sqlite_driver import sqlite_module

    return {
        "quire": quire.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite_module().sqlite_version,
    }
