"""Render pages: one Jinja environment that escapes everything.

`PageRoute` answers errors with a page instead of problem+json when a browser asks.
"""

import functools
import re
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import jinja2
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException

from quire import format
from quire.api import problems
from quire.api.auth import authenticate
from quire.api.models.requests import LARGEST_ID
from quire.api.state import app_state_of
from quire.errors import NotSignedIn, QuireError
from quire.model.access import Scope, Viewer
from quire.web import assets, charts

NAVIGATION = (
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/documents", "Documents"),
    ("/corpora", "Corpora"),
    ("/search", "Search"),
    ("/workers", "Workers"),
    ("/settings", "Settings"),
    ("/tokens", "Tokens"),
    ("/users", "Users"),
    ("/tenants", "Tenants"),
)
FOR_ADMINS = frozenset({"/users"})
FOR_OPERATORS = frozenset({"/settings", "/tenants"})
#: Result of an action by the code in the redirect; no text is ever taken from the URL.
SAID = {
    "stop": "stopped", "resume": "resumed", "cancel": "cancelled", "retry": "restarted",
    "delete": "deleted", "priority": "reprioritised", "create": "created",
    "change": "changed", "pause": "paused", "unpause": "unpaused",
}  # fmt: skip

SENTENCES = {
    "none_selected": "Select at least one job first. Nothing was changed.",
    "retry_file": "The file is queued again.",
    "reindex": "The document is queued for re-indexing.",
}
_IN = re.compile(r"\bin \d[\d,.]* (?:ms|s|min|h|d|years)(?: \d+ (?:s|min|h))?\b")
#: What the actions of a page apply to, by the first part of its path.
NOUNS = {"": "job", "jobs": "job", "documents": "document", "corpora": "corpus", "workers": "kind"}


@functools.cache
def environment() -> jinja2.Environment:
    """Return the environment of the templates."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("quire.web"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters.update(
        number=format.number, counted=format.count, size=format.size,
        span=format.span, tone=format.tone, state_of=format.document_state,
        job_state=format.job_state, stopped=_stopped, ticking=_ticking,
        plain=format.multiline, pretty=format.indented_json, media=format.media_type,
        clock=format.clock_time, when=_when, marked=marked, coded=coded,
    )  # fmt: skip
    made.globals.update(
        asset=assets.address, charts=charts, reasons=format.REASONS, chained=_chained
    )
    return made


@jinja2.pass_context
def _when(context: jinja2.runtime.Context, at: Any) -> Any:
    return when(at, context["now"])


@jinja2.pass_context
def _stopped(context: jinja2.runtime.Context, job: dict[str, Any]) -> str:
    return format.stopped(job, context["now"])


@jinja2.pass_context
def _ticking(context: jinja2.runtime.Context, text: Markup, until: str | None) -> Markup:
    """Replace how long something takes (`in 58 s`) by a time that stays current."""
    ticking = when(until, context["now"]) if until else ""
    return Markup(_IN.sub(lambda found: ticking or found[0], str(text), count=1))  # noqa: S704


def when(at: str | float | None, now: float) -> Markup:
    """Mark up a time: relative to read, exact on hover."""
    seconds = format.epoch(at)
    if seconds is None:
        return Markup('<span class="faint">–</span>')
    try:
        exact = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return Markup("<span>{}</span>").format(seconds)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(timespec="seconds"),
        exact.strftime("%Y-%m-%d %H:%M:%S UTC"),
        format.when(seconds, now),
    )


def marked(text: str, marks: Any) -> Markup:
    """Mark ranges of a text; every part is escaped by itself."""
    parts, at = [], 0
    for start, stop in marks:
        parts += [escape(text[at:start]), Markup("<mark>"), escape(text[start:stop])]
        parts.append(Markup("</mark>"))
        at = stop
    return Markup("").join([*parts, escape(text[at:])])


def coded(text: str) -> Markup:
    """Mark up text between backticks as code; every part is escaped."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 and at < len(parts) - 1 else escape(part)
        for at, part in enumerate(parts)
    )


def with_distinct_names(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return files or documents with names that tell them apart, and their errors without."""
    names = format.distinct_names(items)
    return [
        {**each, "name": name, "reason": format.file_error(each["error"], each["name"], 500)}
        for each, name in zip(items, names, strict=True)
    ]


def _chained(path: str, kept: dict[str, Any], **changed: Any) -> str:
    """Return a URL with the given parameters, some of them changed; None removes one."""
    pairs = [(k, v) for k, v in {**kept, **changed}.items() if v not in (None, "", [])]
    return f"{path}?{urlencode(pairs, doseq=True)}" if pairs else path


def cursor_of(text: str) -> int | None:
    """Return the cursor that a URL carries, or None."""
    return min(int(text), LARGEST_ID) if text.isdecimal() else None


def page(request: Request, template: str, *, status: int = 200, **shown: Any) -> HTMLResponse:
    """Render a page for the viewer of a request."""
    viewer = _viewer(request)
    may_admin = bool(viewer and viewer.may(Scope.ADMIN))
    may_operate = bool(viewer and viewer.operates)
    text = environment().get_template(template).render(
        viewer=viewer,
        csrf=viewer.csrf if viewer else None,
        may_write=bool(viewer and viewer.may(Scope.WRITE)),
        may_admin=may_admin,
        may_operate=may_operate,
        navigation=[
            n for n in NAVIGATION
            if (n[0] not in FOR_ADMINS or may_admin) and (n[0] not in FOR_OPERATORS or may_operate)
        ],
        path=request.url.path,
        here=_here(request),
        now=app_state_of(request).db.clock.now().wall,
        said=_said(request),
        is_signed_in=bool(viewer and viewer.csrf),
        **shown,
    )  # fmt: skip
    # Stored text may contain lone surrogates, which UTF-8 cannot encode.
    sent = text.encode("utf-8", "replace")
    return HTMLResponse(sent, status, headers={"Cache-Control": "no-store"})


def _here(request: Request) -> str:
    """Return the URL of the page without the result of the last action."""
    kept = [(k, v) for k, v in request.query_params.multi_items() if k not in ("did", "n")]
    return f"{request.url.path}?{urlencode(kept)}" if kept else request.url.path


def _said(request: Request) -> str:
    verb, count = request.query_params.get("did", ""), request.query_params.get("n", "1")
    if verb in SENTENCES:
        return SENTENCES[verb]
    if verb not in SAID or not count.isdecimal():
        return ""
    noun = NOUNS.get(request.url.path.split("/")[1], "entry")
    return f"{format.count(int(count[:12]), noun)} {SAID[verb]}."


def back(to: str, verb: str | None = None, count: int = 1) -> RedirectResponse:
    """Redirect to a page of this site, which then shows what was done."""
    place = local(to)
    if verb:
        place += ("&" if "?" in place else "?") + urlencode({"did": verb, "n": count})
    return RedirectResponse(place, 303)


def local(to: str) -> str:
    """Return a path of this site, or the overview for anything else."""
    is_own = to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable()
    return to if is_own else "/"


def wants_page(request: Request) -> bool:
    """Tell whether a browser asks for a page, rather than a script for the API."""
    asks = "text/html" in request.headers.get("accept", "text/html")
    return asks and not request.url.path.startswith("/api/")


def error_page(request: Request, error: Exception) -> Response:
    """Answer an error with a page; who is not signed in goes to the sign-in page."""
    if isinstance(error, NotSignedIn):
        return RedirectResponse("/sign-in", 303)
    status, title, text = problems.describe(error)
    if isinstance(error, HTTPException):
        title = "Not found" if status == 404 else title
        text = "There is no page at this address. It may have been deleted."
    what, _, remedy = text.partition(". ")
    made = page(
        request, "error.html", status=status, code=status, title=title,
        what=what.rstrip(".") + ".", remedy=remedy,
    )  # fmt: skip
    if status in (429, 503):
        made.headers["Retry-After"] = str(problems.RETRY_SECONDS)
    return made


def _viewer(request: Request) -> Viewer | None:
    """Return the viewer, so that an error page keeps their navigation; None if that fails too."""
    if hasattr(request.state, "viewer"):
        known: Viewer = request.state.viewer
        return known
    try:
        return authenticate.authenticate(request)
    except QuireError:
        return None


class PageRoute(APIRoute):
    """A route whose errors become pages when a browser asks."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the handler."""
        inner = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await inner(request)
            except (QuireError, RequestValidationError, HTTPException) as error:
                if not wants_page(request):
                    raise
                return error_page(request, error)

        return answer
