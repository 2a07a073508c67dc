"""Delivery by Celery: broker messages tell workers to look for tasks, never which ones.

`celery -A quire.celery worker`, `flower`, `inspect` and `purge` find the application as
`quire.celery.app`, which is made from the settings on first access. Only `worker` needs the
database; the others work with the URL of the broker alone.
"""

from typing import Any

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from quire import settings
    from quire.celery import embedded_worker
    from quire.errors import BadInput

    found = settings.load()
    if not found.broker_url:
        raise BadInput(
            "quire.celery: QUIRE_BROKER_URL is not set, so Celery has no broker to connect to. "
            "Set it, as in redis://host:6379/0."
        )
    globals()["app"] = embedded_worker.make_app(found)
    return globals()["app"]
