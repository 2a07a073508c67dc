"""Sign in to and out of the dashboard.

Opening a sign-in link only shows a button, because link previews would use it up.
"""

from html import escape
from importlib.resources import files
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from quire.api.auth.authenticate import (
    address_of,
    bearer_token,
    cookie_name,
    is_https,
    require_same_origin,
    sent_csrf,
    session_cookie,
    viewer_of,
)
from quire.api.state import app_state_of
from quire.control import sign_in
from quire.errors import NotSignedIn

router = APIRouter(include_in_schema=False)
_HOW = (
    "<p>On the machine that runs Quire, this command prints a sign-in link:</p>"
    '<pre class="mono">quire user link</pre>'
    "<p>An admin can also create one for you.</p>"
)


@router.get("/sign-in")
def how(request: Request) -> Response:
    """Explain how to sign in."""
    if not app_state_of(request).settings.api_auth:
        return RedirectResponse("/", 303)
    return sign_in_page(request, "Sign in to Quire")


@router.get("/sign-in/{link}")
def ask(request: Request, link: str) -> Response:
    """Show a button that uses the link."""
    try:
        user = sign_in.user_of_link(app_state_of(request).db, link)
    except NotSignedIn as error:
        return _refused(request, error)
    return _page(
        "Sign in to Quire",
        f"<p>As <strong>{escape(user)}</strong>. The link works once.</p>"
        '<form method="post"><button class="main">Sign in</button></form>',
    )


@router.post("/sign-in/{link}")
def enter(request: Request, link: str) -> Response:
    """Use the link: start a session and set its cookie."""
    require_same_origin(request)
    app_state = app_state_of(request)
    s, address = app_state.settings, address_of(request)
    try:
        entry = sign_in.sign_in(
            app_state.db,
            link,
            days=s.session_days,
            tenant=s.tenant,
            address=address,
            is_noted=app_state.rates.may_fail(address, app_state.db.clock.now().lease),
        )
    except NotSignedIn as error:
        return _refused(request, error)
    return begun(request, entry)


def begun(request: Request, entry: sign_in.Entry) -> Response:
    """Answer with the cookie of a new session, and lead to the overview: nowhere else."""
    days = app_state_of(request).settings.session_days
    answer = RedirectResponse("/", 303, headers={"Cache-Control": "no-store"})
    answer.set_cookie(
        cookie_name(request),
        entry.cookie,
        max_age=int(days * sign_in.DAY),
        path="/",
        secure=is_https(request),
        httponly=True,
        samesite="lax",
    )
    return answer


@router.post("/sign-out")
def leave(request: Request, sent: Annotated[str | None, Depends(sent_csrf)]) -> Response:
    """End the session, if there is one."""
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(
        cookie_name(request), path="/", secure=is_https(request), httponly=True, samesite="lax"
    )
    try:
        viewer = viewer_of(request, sent)
    except NotSignedIn:
        return answer
    if bearer_token(request) is None and (cookie := session_cookie(request)):
        address = address_of(request)
        sign_in.sign_out(app_state_of(request).db, cookie, viewer, address=address)
    return answer


def _refused(request: Request, error: NotSignedIn) -> Response:
    app_state = app_state_of(request)
    app_state.rates.count_failure(address_of(request), app_state.db.clock.now().lease)
    what = str(error).partition(". ")[0].removeprefix("sign-in link: ")
    return _page("This sign-in link is not valid", f"<p>It {escape(what)}.</p>{_HOW}", status=401)


def sign_in_page(request: Request, title: str, body: str = "", *, status: int = 200) -> Response:
    """Show how to sign in, after what else there is to say."""
    button = ""
    if issuer := app_state_of(request).settings.oidc_issuer:
        host = escape(urlsplit(issuer).netloc)
        button = f'<p><a class="button main" href="/oidc/start">Sign in with {host}</a></p>'
    return _page(title, f"{body}{button}{_HOW}", status=status)


def _page(title: str, body: str, *, status: int = 200) -> HTMLResponse:
    template = files("quire").joinpath("api/pages/sign_in.html").read_text()
    text = template.format(title=escape(title), body=body)
    return HTMLResponse(text, status, headers={"Cache-Control": "no-store"})
