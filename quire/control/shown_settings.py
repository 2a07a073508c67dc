"""The settings in force, as they may be shown: what is secret is masked."""

import os
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from quire.settings import Settings
from quire.store.db import urls

#: Settings whose value opens a door.
SECRET = frozenset({"embed_api_key", "token"})
MASK = "***"


def listed(found: Settings) -> list[dict[str, Any]]:
    """List every setting with its value, where that comes from, and its sentence."""
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
    if name in ("database_url", "broker_url"):
        return urls.without_password(value)
    if name in SECRET:
        return MASK if value else ""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
