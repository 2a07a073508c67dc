"""Authenticate requests by token or session cookie, or allow localhost if authentication is off.

Browsers also send the cookie with requests of other sites. A request by cookie that can change
something must therefore come from this origin and carry the session's CSRF token.
"""

import hmac
import ipaddress
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import APIKeyCookie, HTTPBearer

from quire.api.auth.rate_limit import network
from quire.api.state import app_state_of
from quire.api.tenant_turns import end_turn
from quire.control import sign_in
from quire.control.caller import Caller
from quire.errors import BadInput, Forbidden, NotSignedIn
from quire.model.access import Role, Scope, Viewer
from quire.settings import Settings

COOKIE = "quire_session"
CSRF_HEADER = "X-CSRF-Token"
#: Form field or query parameter that carries the CSRF token.
CSRF_FIELD = "csrf"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_FORM = "application/x-www-form-urlencoded"


async def sent_csrf(request: Request) -> str | None:
    """Return the CSRF token of a request. The route can still read the form."""
    if (
        request.method in SAFE
        or session_cookie(request) is None
        or bearer_token(request) is not None
    ):
        return None
    for given in (request.headers.get(CSRF_HEADER), request.query_params.get(CSRF_FIELD)):
        if given:
            return given
    # Not multipart forms: the whole upload would have to arrive before it could be refused.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM:
        field = (await request.form()).get(CSRF_FIELD)
        return field if isinstance(field, str) else None
    return None


def viewer_of(request: Request, sent: str | None = None) -> Viewer:
    """Authenticate a request and count it against the rate limit."""
    app_state = app_state_of(request)
    now = app_state.db.clock.now().lease
    try:
        viewer = authenticate(request, sent)
    except NotSignedIn:
        app_state.rates.count(network(address_of(request)), now)
        raise
    app_state.rates.count(f"user {viewer.tenant} {viewer.user}", now)
    app_state.daily.count(app_state.caller(viewer), app_state.db.clock.now().wall, now)
    request.state.viewer = viewer
    return viewer


def authenticate(request: Request, sent: str | None = None) -> Viewer:
    """Return the user of a request, or raise NotSignedIn; not counted against the rate limit."""
    app_state = app_state_of(request)
    app_state.require_known_schema()
    if (token := bearer_token(request)) is not None:
        return _by_token(request, token)
    is_open = not app_state.settings.api_auth
    if is_open:
        _require_loopback_host(request)
    if (cookie := session_cookie(request)) is not None:
        try:
            viewer = sign_in.viewer_by_session(app_state.db, cookie, address_of(request))
        except NotSignedIn:
            # An old cookie does no harm while authentication is off.
            if not is_open:
                raise
        else:
            _require_csrf(request, viewer, sent)
            return viewer
    if not is_open:
        raise NotSignedIn(
            "request: not authenticated. Send `Authorization: Bearer TOKEN`; `quire token create` "
            "creates a token, `quire user link` prints a sign-in link for the dashboard."
        )
    require_same_origin(request)
    whoever = app_state.settings.tenant, app_state.app.user
    return Viewer(*whoever, Role.INSTANCE_ADMIN, frozenset(Scope))


def is_known(request: Request) -> bool:
    """Tell whether a request has a valid token or session, before its body is read.

    The user of the token is kept with the request, which is then not asked for twice.
    """
    app_state = app_state_of(request)
    if not app_state.settings.api_auth:
        return True
    app_state.require_known_schema()
    if (token := bearer_token(request)) is not None:
        address = address_of(request)
        request.state.token_viewer = sign_in.viewer_by_token(app_state.db, token, address)
    elif (cookie := session_cookie(request)) is not None:
        sign_in.viewer_by_session(app_state.db, cookie, address_of(request))
    else:
        return False
    return True


def _by_token(request: Request, token: str) -> Viewer:
    known: Viewer | None = getattr(request.state, "token_viewer", None)
    if known is not None:
        request.state.token_viewer = None  # a stream asks again whether it may go on
        return known
    app_state, address = app_state_of(request), address_of(request)
    try:
        return sign_in.viewer_by_token(app_state.db, token, address)
    except NotSignedIn as error:
        app_state.rates.count_failure(address, app_state.db.clock.now().lease)
        reason = str(error).partition(".")[0].removeprefix("token: ")
        tenant = app_state.settings.tenant
        sign_in.note_refused_token(app_state.db, token, reason, tenant=tenant, address=address)
        raise


def bearer_token(request: Request) -> str | None:
    """Return the bearer token of a request; other schemes are ignored."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def address_of(request: Request) -> str:
    """Return the client's IP address; that of a trusted proxy is the address it tells."""
    proxies = app_state_of(request).settings.trusted_proxies
    address = request.client.host if request.client else "unknown"
    told = request.headers.get("x-forwarded-for", "").split(",")
    # From the last, which the nearest proxy has written; what comes before may be made up.
    while told and is_trusted_proxy(address, proxies):
        address = _plain_address(told.pop().strip()) or address
    return address


def is_trusted_proxy(address: str, proxies: Sequence[str]) -> bool:
    """Tell whether an address is that of a trusted proxy."""
    if not proxies:
        return False
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in ipaddress.ip_network(each) for each in proxies)


def _plain_address(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return None


def public_url(request: Request, path: str) -> str:
    """Return the URL under which a browser reaches a path."""
    if configured := app_state_of(request).settings.public_url:
        return f"{configured.rstrip('/')}{path}"
    return f"{'https' if is_https(request) else 'http'}://{request.url.netloc}{path}"


def session_cookie(request: Request) -> str | None:
    """Return the cookie of the session: over HTTPS only one that no other host could set."""
    return request.cookies.get(cookie_name(request))


def cookie_name(request: Request) -> str:
    """Return the name of the session's cookie."""
    return f"__Host-{COOKIE}" if is_https(request) else COOKIE


def is_https(request: Request) -> bool:
    """Tell whether the client uses HTTPS, here or at a proxy.

    The header can be forged, which affects only the client itself.
    """
    told = request.headers.get("x-forwarded-proto", "").strip().lower()
    return "https" in (request.url.scheme, told)


def _require_csrf(request: Request, viewer: Viewer, sent: str | None) -> None:
    if request.method in SAFE:
        return
    require_same_origin(request)
    if not hmac.compare_digest((sent or "").encode(), (viewer.csrf or "").encode()):
        raise Forbidden(
            "CSRF token: missing, or of another session. Nothing was changed. Reload the page."
        )


def require_same_origin(request: Request) -> None:
    """Refuse unsafe requests that a page of another site makes a browser send."""
    if request.method in SAFE:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        is_own = site in ("same-origin", "none")
    else:
        is_own = origin is None or _host_of(origin) == request.headers.get("host", "").lower()
    if not is_own:
        raise Forbidden(
            "request: sent by a page of another site. Nothing was changed. Open Quire directly. "
            "A reverse proxy in front of Quire must pass on the Host header."
        )


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _require_loopback_host(request: Request) -> None:
    """Refuse host names other than localhost, against DNS rebinding."""
    try:
        name = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        name = ""
    if not is_loopback(name):
        raise Forbidden(
            f"host {name[:100]!r}: while QUIRE_API_AUTH is off, only localhost is served. "
            "Open http://localhost, or turn authentication on."
        )


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address is a loopback one."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_bind_allowed(settings: Settings) -> None:
    """Refuse to listen on a public address while authentication is off."""
    if not settings.api_auth and not is_loopback(settings.api_host):
        raise BadInput(
            f"QUIRE_API_HOST: {settings.api_host!r} is reachable from other machines, and "
            "QUIRE_API_AUTH is off. Nothing was started. Turn authentication on, or listen on "
            "127.0.0.1."
        )


#: Only for the OpenAPI document: they document authentication and refuse nothing.
_TOKEN = HTTPBearer(auto_error=False, description="A token created with `quire token create`.")
_SESSION = APIKeyCookie(name=COOKIE, auto_error=False, description="A session of the dashboard.")


async def viewer_in_turn(
    request: Request, sent: Annotated[str | None, Depends(sent_csrf)] = None
) -> Viewer:
    """Authenticate a request when it is its tenant's turn."""
    turns = app_state_of(request).turns
    secret = bearer_token(request) or session_cookie(request) or ""
    tenant = turns.tenant_of(secret)
    if tenant is None:
        await turns.enter_unknown(request, network(address_of(request)))
    else:
        await turns.enter(request, tenant)
    try:
        viewer = await run_in_threadpool(viewer_of, request, sent)
    except NotSignedIn:
        turns.forget(secret)
        raise
    if viewer.tenant != tenant:
        end_turn(request)
        turns.remember(secret, viewer.tenant)
        await turns.enter(request, viewer.tenant)
    return viewer


#: The user with role and permissions, for routes that decide more than `Reader` and `Writer` do.
Viewed = Annotated[Viewer, Depends(viewer_in_turn)]


def _needs(scope: Scope, *, of_corpus: bool = False) -> object:
    async def check(
        request: Request,
        viewer: Viewed,
        token: Annotated[object, Depends(_TOKEN)] = None,
        session: Annotated[object, Depends(_SESSION)] = None,
    ) -> Caller:
        if not viewer.may(scope):
            raise Forbidden(
                f"user {viewer.user}: this needs the permission {scope}. Ask an admin of the "
                "tenant, or use another token."
            )
        if viewer.corpus is not None and not of_corpus:
            raise Forbidden(
                f"token: is bound to the corpus {viewer.corpus.name}, where it reads, searches and "
                "ingests. Anything else needs a token without a corpus."
            )
        return app_state_of(request).caller(viewer, address_of(request))

    return Depends(check)


Reader = Annotated[Caller, _needs(Scope.READ)]
Writer = Annotated[Caller, _needs(Scope.WRITE)]
Admin = Annotated[Caller, _needs(Scope.ADMIN)]
#: The same also for tokens bound to a corpus: what the route calls must look at `caller.corpus`.
CorpusReader = Annotated[Caller, _needs(Scope.READ, of_corpus=True)]
CorpusWriter = Annotated[Caller, _needs(Scope.WRITE, of_corpus=True)]


async def _instance_admin(viewer: Viewed, caller: Admin) -> Caller:
    if not viewer.operates:
        raise Forbidden(
            f"user {viewer.user}: this concerns all tenants, so it needs the role "
            f"{Role.INSTANCE_ADMIN}. Nothing was changed. Ask who operates this installation."
        )
    return caller


#: An instance admin: for what all tenants share.
InstanceAdmin = Annotated[Caller, Depends(_instance_admin)]
