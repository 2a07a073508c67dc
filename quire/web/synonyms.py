"""The page of the synonyms of a corpus: a list in a text field."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form, Request, Response

from quire.api.auth.authenticate import Reader, Writer
from quire.api.routes.corpora import Name
from quire.control import synonyms as verbs
from quire.text.synonyms import MAX_CHARS, STARTERS
from quire.web.rendering import PageRoute, back, page

router = APIRouter(prefix="/synonyms", route_class=PageRoute, include_in_schema=False)
#: With the carriage returns that browsers add to each line.
LONGEST = 2 * MAX_CHARS


@router.get("/{name:path}")
def show(request: Request, caller: Reader, name: Name) -> Response:
    """Show the synonyms of a corpus."""
    return page(
        request, "synonyms.html", shown=verbs.shown(caller, name), place=_place(name),
        corpus_place=f"/corpora/{quote(name, safe='')}", longest=LONGEST, starters=STARTERS,
    )  # fmt: skip


@router.post("/{name:path}")
def change(
    caller: Writer,
    name: Name,
    csv: Annotated[str, Form(max_length=LONGEST)] = "",
    starter: Annotated[str, Form(max_length=40)] = "",
) -> Response:
    """Replace the synonyms of a corpus by the text, or by a list of Quire; remove them if empty."""
    if starter or csv.strip():
        plain = "\n".join(csv.splitlines())
        verbs.replace(caller, name, verbs.content(None if starter else plain, starter or None))
    else:
        verbs.remove(caller, name)
    return back(_place(name), "change")


def _place(name: str) -> str:
    return f"/synonyms/{quote(name, safe='')}"
