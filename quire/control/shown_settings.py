"""The settings in effect, with secrets masked."""

import os
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from quire.settings import Settings, by_topic
from quire.store.db import urls

#: Secret settings, masked in output.
SECRET = frozenset(
    {
        "embed_api_key",
        "oidc_client_secret",
        "rerank_key",
        "secret_key",
        "source_credentials",
        "token",
    }
)
MASK = "***"


def listed(found: Settings) -> list[dict[str, Any]]:
    """List every setting with its topic, value, origin and description."""
    path = found.home / "quire.toml"
    table = tomllib.loads(path.read_text()) if path.is_file() else {}
    topics = {name: topic for topic, names in by_topic().items() for name in names}
    return [
        {
            "name": f"QUIRE_{each.name.upper()}",
            "topic": topics[f"QUIRE_{each.name.upper()}"],
            "value": _value(found, each.name),
            "from": _source(each.name, table),
            "sentence": each.metadata["doc"],
        }
        for each in fields(found)
    ]


def _source(name: str, table: dict[str, Any]) -> str:
    key = f"QUIRE_{name.upper()}"
    if f"{key}_FILE" in os.environ:
        return f"{key}_FILE"
    if key in os.environ:
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
