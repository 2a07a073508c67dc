"""Clients of the API in this process: by a token, by a session, or without either."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from fastapi.testclient import TestClient

from quire.api import app as frame
from quire.api.auth import authenticate
from quire.control import access, sign_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fastapi import FastAPI

    from quire.app import App
    from quire.control.caller import Caller

#: A name that is answered also where authentication is off.
PLACE = "http://localhost"


def stranger(api: FastAPI) -> TestClient:
    """Return a client that nobody knows."""
    return TestClient(api, base_url=PLACE, follow_redirects=False, raise_server_exceptions=False)


def by_token(
    api: FastAPI,
    role: str = "admin",
    *,
    user: str | None = None,
    tenant: str | None = None,
    scopes: Iterable[str] | None = None,
    days: float | None = None,
) -> TestClient:
    """Return a client with a token of a user of this role, who is made if missing."""
    caller = member(api, role, user=user, tenant=tenant)
    made = access.create_token(caller, "test", scopes, days, user=caller.user)
    client = stranger(api)
    client.headers["Authorization"] = f"Bearer {made['token']}"
    return client


def by_session(
    api: FastAPI, role: str = "admin", *, user: str | None = None, tenant: str | None = None
) -> TestClient:
    """Return a client with a session of such a user, which sends its csrf as a header."""
    caller = member(api, role, user=user, tenant=tenant)
    link = sign_in.sign_in_link(caller, caller.user)["link"]
    entry = sign_in.sign_in(caller.db, link, days=14, tenant=caller.tenant, address="testclient")
    client = stranger(api)
    client.cookies.set(authenticate.COOKIE, entry.cookie, domain="localhost.local")
    client.headers[authenticate.CSRF_HEADER] = entry.viewer.csrf or ""
    return client


def member(
    api: FastAPI, role: str, *, user: str | None = None, tenant: str | None = None
) -> Caller:
    """Return a caller of a user of this role, made if missing; named after the role by default."""
    app: App = api.state.app_state.app
    caller = dataclasses.replace(
        app.caller, tenant=tenant or app.settings.tenant, user=user or role
    )
    known = {each["name"] for each in access.list_users(caller)}
    if caller.user not in known:
        access.create_user(caller, caller.user, role)
    return caller


def api_of(app: App) -> FastAPI:
    """Return the web application of an app."""
    return frame.create_api(app)
