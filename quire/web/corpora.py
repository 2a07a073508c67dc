"""Corpus pages: the list, and one corpus with its settings and the effect of changing them."""

import re
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Query, Request, Response

from quire import format
from quire.api.auth.authenticate import Reader, Viewed, Writer
from quire.api.routes.corpora import Name
from quire.control import corpora as verbs
from quire.errors import BadInput
from quire.model.access import Scope
from quire.model.pipeline import REPEATED, described
from quire.parse import plugin_parser
from quire.web.rendering import PageRoute, back, page

router = APIRouter(prefix="/corpora", route_class=PageRoute, include_in_schema=False)
LONGEST = 1000
#: Effect of a changed setting on documents that are already indexed.
COSTS = {
    "read": "parsed, chunked and embedded again",
    "cut": "chunked and embedded again",
    "embed": "embedded again",
}
#: How characters that a single-line field cannot hold are written in it.
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MEANT = {shown: char for char, shown in ESCAPES.items()}


async def _given(request: Request) -> dict[str, str]:
    """Return the settings that a form carries."""
    sent = await request.form()
    known = {name for name, _, _ in described()}
    given = {name: str(value) for name, value in sent.items() if name in known}
    for name, value in given.items():
        if len(value) > LONGEST:
            raise BadInput(
                f"{name}: {len(value):,} characters (at most {LONGEST:,}). Nothing was changed."
            )
    return {name: plain(value) for name, value in given.items()}


Given = Annotated[dict[str, str], Depends(_given)]


@router.get("")
def listing(request: Request, caller: Reader) -> Response:
    """List corpora with the settings that differ from the defaults."""
    listed = verbs.listed(caller)
    for each in listed:
        differing = verbs.differing(each["settings"])
        each["differing"] = ", ".join(f"{name} {_quoted(v)}" for name, v in differing.items())
    return page(request, "corpora.html", corpora=listed)


@router.post("")
def create(caller: Writer, name: Annotated[str, Form(max_length=200)]) -> Response:
    """Create a corpus with the default settings, and show it."""
    verbs.create(caller, name.strip(), {})
    return back(_place(name.strip()), "create")


@router.get("/{name:path}")
def one(
    request: Request,
    caller: Reader,
    viewer: Viewed,
    name: Name,
    ask: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """Show one corpus, or ask for confirmation before deleting it."""
    corpus = verbs.shown(caller, name)
    if ask == "delete" and viewer.may(Scope.WRITE):
        return _ask_to_delete(request, corpus)
    rows = [
        {"name": key, "value": value, "text": escaped(value), "default": default, "sentence": doc,
         "shown": format.setting(escaped(value)), "usual": format.setting(escaped(default)),
         "cost": COSTS.get(REPEATED.get(key, ""), "unchanged"),
         "choices": _choices(key, value)}
        for key, value, default, doc in verbs.explained(corpus["pipeline"])
    ]  # fmt: skip
    return page(
        request, "corpus.html", corpus=corpus, settings=rows, place=_place(name),
    )  # fmt: skip


@router.post("/{name:path}")
def act(
    request: Request,
    caller: Writer,
    name: Name,
    given: Given,
    verb: Annotated[str, Form(max_length=20)] = "change",
    sure: Annotated[str, Form(max_length=20)] = "",
) -> Response:
    """Change or delete a corpus; the effect of a change is shown before it is made."""
    if verb == "delete":
        verbs.delete(caller, name)
        return back("/corpora", "delete")
    changes = verbs.preview(caller, name, given)
    if not changes:
        raise BadInput(
            f"corpus {name}: no setting differs from its current value. Nothing was changed."
        )
    if not sure:
        return _ask_to_change(request, verbs.shown(caller, name), changes)
    verbs.change(caller, name, given)
    return back(_place(name), "change")


def _ask_to_change(
    request: Request, corpus: dict[str, Any], changes: list[tuple[str, Any, Any]]
) -> Response:
    listed = [f"{key} from {_quoted(old)} to {_quoted(to)}" for key, old, to in changes]
    cost = verbs.consequence([key for key, _, _ in changes])
    count = format.count(corpus["documents"], "document")
    return page(
        request, "confirm.html", question=f"Change corpus {corpus['name']}?",
        consequence=f"This changes {'; '.join(listed)}. The corpus has {count}. Documents that are "
        f"already indexed change at their next ingest or when you re-index them: {cost}.",
        action=_place(corpus["name"]), answer="Yes, change", is_risky=False,
        to=_place(corpus["name"]),
        fields=[*((key, escaped(to)) for key, _, to in changes), ("sure", "yes")],
    )  # fmt: skip


def _ask_to_delete(request: Request, corpus: dict[str, Any]) -> Response:
    count = format.count(corpus["documents"], "document")
    stays = f"Its {count} are kept and stay searchable." if corpus["documents"] else ""
    return page(
        request, "confirm.html", question=f"Delete corpus {corpus['name']}?",
        consequence=f"Its settings are deleted permanently. {stays or 'It has no documents.'}",
        action=_place(corpus["name"]), answer="Yes, delete", is_risky=True,
        to=_place(corpus["name"]), fields=[("verb", "delete")],
    )  # fmt: skip


def _choices(name: str, value: Any) -> list[str]:
    """List the values of a setting with few choices, the current one included."""
    if isinstance(value, bool):
        return ["true", "false"]
    few = {"ocr": ["auto", "always", "never"], "parser": ["auto", *plugin_parser.names()]}.get(
        name, []
    )
    return few if value in few or not few else [*few, value]


def escaped(value: Any) -> str:
    """Write a value for a single-line field."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return "".join(ESCAPES.get(char, char) for char in text)


def plain(text: str) -> str:
    """Read a value that `escaped` wrote."""
    return re.sub(r"\\[\\nrt]", lambda found: _MEANT[found[0]], text)


def _quoted(value: Any) -> str:
    return format.setting(escaped(value))


def _place(name: str) -> str:
    return f"/corpora/{quote(name, safe='')}"
