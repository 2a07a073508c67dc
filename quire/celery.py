"""The Celery application: `celery -A quire.celery worker`, `flower`, `inspect`, `purge`.

It is made of Quire's settings at import. `quire worker` needs no import of it.
"""

from typing import TYPE_CHECKING

from quire import settings
from quire.errors import BadInput
from quire.runtime import hosted

if TYPE_CHECKING:
    from celery import Celery

__all__ = ["app"]


def _made() -> "Celery":
    found = settings.load()
    if not found.broker_url:
        raise BadInput(
            "quire.celery: QUIRE_BROKER_URL is not set, so there is nothing that Celery could "
            "deliver by. Set it, as in redis://host:6379/0."
        )
    return hosted.equip(found)


app = _made()
