"""Sign in to the dashboard with an OpenID provider.

The secrets of a sign-in are in a cookie of the browser that began it, and nowhere else; it ends
when that browser comes back. The session's cookie is always a new one, and leads to the overview.
"""

import threading
from collections.abc import Callable
from html import escape
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from quire.api.auth.authenticate import address_of, is_https
from quire.api.routes.sign_in import begun, sign_in_page
from quire.api.state import app_state_of
from quire.control import single_sign_on
from quire.control.openid import LONGEST, Attempt, Provider
from quire.errors import BadInput, FetchFailed, NotFound, NotSignedIn, QuireError, TooMany

router = APIRouter(prefix="/oidc", include_in_schema=False)
Result = TypeVar("Result")
ABOUT = "single sign-on: "
COOKIE = "quire_oidc"
#: Seconds within which a browser must come back.
SECONDS = 600
#: Requests that may wait for the provider at a time.
MOST = 8
_waiting = threading.BoundedSemaphore(MOST)
Text = Annotated[str, Query(max_length=LONGEST)]


@router.get("/start")
def start(request: Request) -> Response:
    """Send the browser to the provider."""
    try:
        attempt = Attempt.begin()
        url = _asked(lambda: _provider(request).start(attempt))
    except (FetchFailed, TooMany) as error:
        return _failed(request, error)
    answer = RedirectResponse(url, 303, headers={"Cache-Control": "no-store"})
    answer.set_cookie(
        _cookie_name(request), attempt.cookie, max_age=SECONDS, path="/",
        secure=is_https(request), httponly=True, samesite="lax",
    )  # fmt: skip
    return answer


@router.get("/callback")
def come_back(
    request: Request, code: Text = "", state: Text = "", iss: Text | None = None, error: Text = ""
) -> Response:
    """Receive the browser: begin a session, or say why not."""
    app_state = app_state_of(request)
    provider = _provider(request)
    attempt = Attempt.of_cookie(request.cookies.get(_cookie_name(request)))
    address, now = address_of(request), app_state.db.clock.now()
    try:
        if attempt is None:
            raise NotSignedIn("single sign-on: was not begun in this browser, or too long ago.")
        if error:
            raise NotSignedIn(f"single sign-on: the provider has refused it ({error[:60]}).")
        identity = _asked(
            lambda: provider.finish(attempt, code=code, state=state, issuer=iss, now=now.wall)
        )
        entry = single_sign_on.enter(app_state.db, app_state.settings, identity, address=address)
    except QuireError as refusal:
        if isinstance(refusal, NotSignedIn):
            if app_state.rates.may_fail(address, now.lease):
                reason = str(refusal).partition(". ")[0].removeprefix(ABOUT)
                single_sign_on.note_refused(
                    app_state.db, app_state.settings.tenant, reason, address
                )
            app_state.rates.count_failure(address, now.lease)
        answer = _failed(request, refusal)
    else:
        answer = begun(request, entry)
    answer.delete_cookie(
        _cookie_name(request), path="/", secure=is_https(request), httponly=True, samesite="lax"
    )
    return answer


def _asked(ask: Callable[[], Result]) -> Result:
    if not _waiting.acquire(blocking=False):
        raise TooMany("single sign-on: too many sign-ins at a time. Try again in a minute.")
    try:
        return ask()
    finally:
        _waiting.release()


def _provider(request: Request) -> Provider:
    provider = app_state_of(request).provider
    if provider is None:
        raise NotFound("single sign-on: is not set up here. Ask for a link to sign in with.")
    return provider


def _cookie_name(request: Request) -> str:
    return f"__Host-{COOKIE}" if is_https(request) else COOKIE


def _failed(request: Request, error: QuireError) -> Response:
    status = {NotSignedIn: 401, BadInput: 401, TooMany: 429}.get(type(error), 502)
    what = str(error).removeprefix(ABOUT)
    shown = f"<p>{escape(what[:1].upper() + what[1:])}</p>"
    return sign_in_page(request, "You are not signed in", shown, status=status)
