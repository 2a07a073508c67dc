"""`quire settings` and `quire version`."""

import os
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from quire.cli import console, options, places
from quire.settings import Settings


def settings(json: options.Json = False) -> None:
    """List every setting, its value and where it comes from."""
    from quire.cli import opening

    items = _items(opening.chosen())
    if json:
        console.as_json({"items": items, "next": None})
        return
    drawn = console.table("SETTING", "VALUE", "FROM", "WHAT IT DOES", wide="WHAT IT DOES")
    drawn.columns[1].overflow = drawn.columns[3].overflow = "fold"
    drawn.columns[1].no_wrap = drawn.columns[3].no_wrap = False
    for each in items:
        drawn.add_row(each["name"], _text(each["value"]), each["from"], each["sentence"])
    console.show(drawn)


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
    from quire.store.embedded import sqlite_module

    return {
        "quire": quire.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite_module().sqlite_version,
    }


def _items(found: Settings) -> list[dict[str, Any]]:
    path = found.home / "quire.toml"
    table = tomllib.loads(path.read_text()) if path.is_file() else {}
    return [
        {
            "name": f"QUIRE_{each.name.upper()}",
            "value": _value(found, each.name),
            "from": _source(each.name, table),
            "sentence": each.metadata["doc"],
        }
        for each in fields(found)
    ]


def _source(name: str, table: dict[str, Any]) -> str:
    if f"QUIRE_{name.upper()}" in os.environ:
        return "environment"
    return "quire.toml" if name in table else "default"


def _value(found: Settings, name: str) -> Any:
    value = getattr(found, name)
    if name == "database_url":
        return places.without_password(value)
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return str(value) or "none"
