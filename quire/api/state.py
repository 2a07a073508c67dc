"""State of one API process that routes share: settings, database, blobs, caches."""

import dataclasses
import functools
import importlib.util
import time

import anyio
from fastapi import Request

from quire.api.auth.daily_requests import DailyRequests
from quire.api.auth.rate_limit import RateLimiter
from quire.api.page_renderer import DrawingQueue
from quire.api.response_cache import ResponseCache
from quire.api.tenant_turns import TenantTurns
from quire.api.upload_slots import IN_ALL, UploadSlots
from quire.app import App
from quire.control import single_sign_on
from quire.control.caller import Caller
from quire.control.openid import Client, Provider
from quire.errors import BadInput, DatabaseUnavailable, SchemaAhead, Transferred
from quire.fetch.blobs.backend import Blobs, open_blobs
from quire.model.access import Viewer
from quire.model.records import API
from quire.settings import Settings
from quire.store.db import migrate
from quire.store.db.engine import Database

#: Seconds for which the schema version is cached.
SCHEMA_SECONDS = 2.0


class AppState:
    """One per API process, kept as `api.state.app_state`."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.settings: Settings = app.settings
        _require_sign_on(app.settings)
        self.db: Database = app.db
        self.rates = RateLimiter(app.settings.api_requests_per_minute)
        self.daily = DailyRequests()
        self.turns = TenantTurns()
        #: Cached slow responses.
        self.recent = ResponseCache()
        self._known_until = 0.0

    def require_known_schema(self) -> None:
        """Raise DatabaseUnavailable if the schema was upgraded or the database transferred."""
        if time.monotonic() >= self._known_until:
            self.count_missing_migrations()
            self._known_until = time.monotonic() + SCHEMA_SECONDS

    def count_missing_migrations(self) -> int:
        """Return how far the schema is behind; raise as `require_known_schema` does, uncached."""
        try:
            with self.db.read() as conn:
                return migrate.check(conn)
        except (SchemaAhead, Transferred) as error:
            raise DatabaseUnavailable(str(error), retry_after=30) from error

    @functools.cached_property
    def provider(self) -> Provider | None:
        """The OpenID provider, if there is one."""
        s = self.settings
        if not s.oidc_issuer:
            return None
        back = f"{s.public_url.rstrip('/')}/oidc/callback"
        return Provider(
            Client(s.oidc_issuer, s.oidc_client_id, s.oidc_client_secret, back, s.oidc_scopes)
        )

    @functools.cached_property
    def blobs(self) -> Blobs:
        """The blob store."""
        return open_blobs(self.settings.for_children)

    @functools.cached_property
    def uploading(self) -> anyio.CapacityLimiter:
        """Threads that write uploads, one for each place."""
        return anyio.CapacityLimiter(IN_ALL)

    @functools.cached_property
    def slots(self) -> UploadSlots:
        """The places for uploads."""
        return UploadSlots()

    @functools.cached_property
    def drawing(self) -> DrawingQueue:
        """Requests for page images."""
        return DrawingQueue()

    @functools.cached_property
    def long_answers(self) -> anyio.CapacityLimiter:
        """Threads that make answers out of whole pages, each of which may take 200 MB."""
        return anyio.CapacityLimiter(2)

    def caller(self, viewer: Viewer, address: str | None = None) -> Caller:
        """Return the signed-in user as verbs and queries take it."""
        return dataclasses.replace(
            self.app.caller,
            tenant=viewer.tenant,
            user=viewer.user,
            role=viewer.role,
            corpus=viewer.corpus,
            address=address,
            origin=API,
        )


def _require_sign_on(settings: Settings) -> None:
    """Refuse to start with a provider that nobody could sign in with."""
    if settings.oidc_issuer and importlib.util.find_spec("joserfc") is None:
        raise BadInput(
            "QUIRE_OIDC_ISSUER: needs the extra oidc. Nothing was started. Install it with: pip "
            "install 'quire[oidc]'"
        )
    single_sign_on.parse_rules(settings.oidc_allow)


def app_state_of(request: Request) -> AppState:
    """Return the state of the process that serves a request."""
    found: AppState = request.app.state.app_state
    return found
