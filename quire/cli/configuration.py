"""`quire settings` and `quire version`."""

from quire import format
from quire.cli import console, options, session


def settings(json: options.Json = False) -> None:
    """List every setting, its value and where it comes from."""
    from quire.control import shown_settings as listing

    items = listing.listed(session.load_settings())
    if json:
        console.as_json({"items": items, "next": None})
        return
    drawn = console.table("SETTING", "VALUE", "FROM", "WHAT IT DOES", wide="WHAT IT DOES")
    drawn.columns[1].overflow = drawn.columns[3].overflow = "fold"
    drawn.columns[1].no_wrap = drawn.columns[3].no_wrap = False
    for each in items:
        drawn.add_row(each["name"], format.setting(each["value"]), each["from"], each["sentence"])
    console.show(drawn)


def warn_of_unknown() -> None:
    """Name variables that are no settings: nobody would see why nothing changed."""
    from quire.settings import unknown

    for name, nearest in unknown():
        hint = f" Did you mean {nearest}?" if nearest else " `quire settings` lists all."
        console.note(f"{name}: there is no such setting; it is ignored.{hint}")


def version(json: options.Json = False) -> None:
    """Print the versions of Quire, Python and SQLite."""
    found = versions()
    if json:
        console.as_json(found)
    else:
        console.say(f"quire {found['quire']} (Python {found['python']}, SQLite {found['sqlite']})")


def versions() -> dict[str, str]:
    """Return the versions of what matters."""
    import platform

    import quire
    from quire.store.db.sqlite import sqlite_module

    return {
        "quire": quire.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite_module().sqlite_version,
    }
