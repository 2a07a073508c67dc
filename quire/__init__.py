"""Quire: background jobs and document ingestion that survive crashes.

Public names load on first use, so that `import quire` costs a plugin or a child process next to
nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire.app import App
    from quire.errors import Permanent, QuireError, Stopped, Transient
    from quire.fetch.items import Item
    from quire.model.contracts import job, layout, parser, source
    from quire.model.pages import Page
    from quire.model.records import Submission
    from quire.runtime.child.context import Context

__all__ = [
    "App",
    "Context",
    "Item",
    "Page",
    "Permanent",
    "QuireError",
    "Stopped",
    "Submission",
    "Transient",
    "job",
    "layout",
    "parser",
    "source",
]
__version__ = "0.1.0"

_HOMES = {
    "App": "quire.app",
    "Context": "quire.runtime.child.context",
    "Item": "quire.fetch.items",
    "Page": "quire.model.pages",
    "Permanent": "quire.errors",
    "QuireError": "quire.errors",
    "Stopped": "quire.errors",
    "Submission": "quire.model.records",
    "Transient": "quire.errors",
    "job": "quire.model.contracts",
    "layout": "quire.model.contracts",
    "parser": "quire.model.contracts",
    "source": "quire.model.contracts",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'quire' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
