"""What routes work with: the app, its blobs, and a desk for whoever asks."""

import dataclasses
import functools
import time

from fastapi import Request

from quire.api.auth.rate_limit import Rates
from quire.api.response_cache import Recent
from quire.app import App
from quire.control.jobs import Desk
from quire.errors import DatabaseUnavailable, SchemaAhead
from quire.fetch.blobs.folder import Blobs
from quire.ingest import resources
from quire.model.access import Viewer
from quire.settings import Settings
from quire.store.db import migrate
from quire.store.db.engine import Database

#: How long the schema is taken for what it was.
SCHEMA_SECONDS = 2.0


class Office:
    """One for each API process, kept as `api.state.office`."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._known_until = 0.0

    def require_known_schema(self) -> None:
        """Serve nobody on a schema that this Quire is too old for; it may have changed."""
        if time.monotonic() < self._known_until:
            return
        try:
            with self.db.read() as conn:
                migrate.lacking(conn)
        except SchemaAhead as error:
            raise DatabaseUnavailable(str(error), retry_after=30) from error
        self._known_until = time.monotonic() + SCHEMA_SECONDS

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.app.settings

    @property
    def db(self) -> Database:
        """The database."""
        return self.app.db

    @functools.cached_property
    def blobs(self) -> Blobs:
        """Where the bytes of documents are."""
        return resources.blobs_of(self.settings.for_children)

    @functools.cached_property
    def rates(self) -> Rates:
        """How often each requester has asked lately."""
        return Rates(self.settings.api_rate)

    @functools.cached_property
    def recent(self) -> Recent:
        """Answers that took long to make."""
        return Recent()

    def desk(self, viewer: Viewer) -> Desk:
        """Return a desk at which everything is done for this viewer's tenant."""
        return dataclasses.replace(self.app.desk, tenant=viewer.tenant, user=viewer.user)


def office_of(request: Request) -> Office:
    """Return the office of the process that serves a request."""
    found: Office = request.app.state.office
    return found
