"""Lets requests in: by a token, by a session's cookie, or all of this machine where auth is off.

A browser sends a cookie whoever wrote the page. So a request by cookie that may change something
must come from a page of this site and bring the session's csrf, which only such a page knows.
"""

import hmac
import ipaddress
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import APIKeyCookie, HTTPBearer

from quire.api.auth.rate_limit import network
from quire.api.state import app_state_of
from quire.control import sign_in
from quire.errors import BadInput, Forbidden, NotSignedIn
from quire.model.access import Role, Scope, Viewer
from quire.settings import Settings

COOKIE = "quire_session"
CSRF_HEADER = "X-CSRF-Token"
#: The field of a form, or the parameter of an address, that carries the csrf.
CSRF_FIELD = "csrf"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_FORM = "application/x-www-form-urlencoded"


async def sent_csrf(request: Request) -> str | None:
    """Return the csrf that a request brings. A form stays readable for the route."""
    if request.method in SAFE or COOKIE not in request.cookies or bearer(request) is not None:
        return None
    for given in (request.headers.get(CSRF_HEADER), request.query_params.get(CSRF_FIELD)):
        if given:
            return given
    # Only this kind: a file that is uploaded would have to arrive before it could be refused.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM:
        field = (await request.form()).get(CSRF_FIELD)
        return field if isinstance(field, str) else None
    return None


def viewer_of(request: Request, sent: Annotated[str | None, Depends(sent_csrf)] = None) -> Viewer:
    """Return whose request it is, or refuse it."""
    app_state = app_state_of(request)
    now = app_state.db.clock.now().lease
    try:
        viewer = whose(request, sent)
    except NotSignedIn:
        app_state.rates.count(network(address_of(request)), now)
        raise
    app_state.rates.count(f"user {viewer.tenant} {viewer.user}", now)
    request.state.viewer = viewer
    return viewer


def whose(request: Request, sent: str | None = None) -> Viewer:
    """Return whose request it is, or refuse it; it is not counted against the rate."""
    app_state = app_state_of(request)
    app_state.require_known_schema()
    if (token := bearer(request)) is not None:
        return _by_token(request, token)
    is_open = not app_state.settings.api_auth
    if is_open:
        _refuse_other_names(request)
    if (cookie := request.cookies.get(COOKIE)) is not None:
        try:
            viewer = sign_in.viewer_by_session(app_state.db, cookie)
        except NotSignedIn:
            # A browser keeps the cookie of an earlier time; where all are let in it does no harm.
            if not is_open:
                raise
        else:
            _guard(request, viewer, sent)
            return viewer
    if not is_open:
        raise NotSignedIn(
            "request: has no token and no session. Send `Authorization: Bearer TOKEN`; "
            "`quire token create` makes one, `quire user link` signs in to the dashboard."
        )
    refuse_other_sites(request)
    return Viewer(app_state.settings.tenant, app_state.app.user, Role.ADMIN, frozenset(Scope))


def _by_token(request: Request, token: str) -> Viewer:
    app_state, address = app_state_of(request), address_of(request)
    try:
        return sign_in.viewer_by_token(app_state.db, token)
    except NotSignedIn as error:
        app_state.rates.count_failure(address, app_state.db.clock.now().lease)
        reason = str(error).partition(".")[0].removeprefix("token: ")
        tenant = app_state.settings.tenant
        sign_in.note_refused_token(app_state.db, token, reason, tenant=tenant, address=address)
        raise


def bearer(request: Request) -> str | None:
    """Return the token that a request brings; other schemes of authorization are not ours."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def address_of(request: Request) -> str:
    """Return the address that a request came from."""
    return request.client.host if request.client else "unknown"


def is_https(request: Request) -> bool:
    """Tell whether the requester sees HTTPS: here, or at a proxy in front.

    Who lies about it harms nobody else.
    """
    told = request.headers.get("x-forwarded-proto", "").strip().lower()
    return "https" in (request.url.scheme, told)


def _guard(request: Request, viewer: Viewer, sent: str | None) -> None:
    if request.method in SAFE:
        return
    refuse_other_sites(request)
    if not hmac.compare_digest((sent or "").encode(), (viewer.csrf or "").encode()):
        raise Forbidden(
            "csrf: missing, or of another session. Nothing was changed; load the page again."
        )


def refuse_other_sites(request: Request) -> None:
    """Refuse what a browser sends for a page of another site, where it may change something."""
    if request.method in SAFE:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_own = site in ("same-origin", "none")
    else:
        is_own = origin is None or _place(origin) == request.headers.get("host", "").lower()
    if not is_own:
        raise Forbidden(
            "request: sent by a page of another site. Nothing was changed; open Quire itself. "
            "A proxy in front of Quire has to pass the Host header on."
        )


def _place(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _refuse_other_names(request: Request) -> None:
    """Refuse a name of another site that was made to point here, where no one is asked who."""
    try:
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        name = ""
    if not is_loopback(name):
        raise Forbidden(
            f"host {name[:100]!r}: with QUIRE_API_AUTH off only localhost is answered. "
            "Open http://localhost, or turn authentication on."
        )


def is_loopback(host: str) -> bool:
    """Tell whether a name or an address is this machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_bind_allowed(settings: Settings) -> None:
    """Refuse to listen where others could come in without being asked who they are."""
    if not settings.api_auth and not is_loopback(settings.api_host):
        raise BadInput(
            f"QUIRE_API_HOST: {settings.api_host!r} can be reached by others, and QUIRE_API_AUTH "
            "is off. Nothing was started; turn authentication on, or listen on 127.0.0.1."
        )


#: For the OpenAPI document alone: they say how to sign in, and refuse nothing.
_TOKEN = HTTPBearer(auto_error=False, description="A token of `quire token create`.")
_SESSION = APIKeyCookie(name=COOKIE, auto_error=False, description="A session of the dashboard.")


def _needs(scope: Scope) -> object:
    async def check(
        viewer: Annotated[Viewer, Depends(viewer_of)],
        token: Annotated[object, Depends(_TOKEN)] = None,
        session: Annotated[object, Depends(_SESSION)] = None,
    ) -> Viewer:
        if not viewer.may(scope):
            raise Forbidden(
                f"user {viewer.user}: this needs the scope {scope}. Ask an admin of the tenant, "
                "or use another token."
            )
        return viewer

    return Depends(check)


Reader = Annotated[Viewer, _needs(Scope.READ)]
Writer = Annotated[Viewer, _needs(Scope.WRITE)]
Admin = Annotated[Viewer, _needs(Scope.ADMIN)]
