"""Document pages: the gallery with upload, and one document with its pages and history."""

from functools import partial
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Form, Query, Request, Response

from quire import format
from quire.api.auth.authenticate import Reader, Writer
from quire.api.models import requests
from quire.api.routes import uploads
from quire.api.state import app_state_of
from quire.control import corpora, document_content, documents, queries
from quire.control.caller import Caller
from quire.control.explain import document as explain_document
from quire.errors import TooLarge
from quire.model.states import DocumentState, parse_states
from quire.web import page_range_strip, structure
from quire.web.rendering import PageRoute, back, cursor_of, page, with_distinct_names

router = APIRouter(prefix="/documents", route_class=PageRoute, include_in_schema=False)
PAGE = 24
FILTERS = ("state", "corpus", "type", "q")

Asked = Annotated[str, Query(max_length=200)]
View = Annotated[Literal["", "structure", "text", "tables", "outline"], Query()]


@router.get("")
def listing(
    request: Request,
    caller: Reader,
    state: Asked = "",
    corpus: Asked = "",
    type: Asked = "",
    q: Asked = "",
    cursor: Asked = "",
) -> Response:
    """List documents, latest first."""
    kept = {"state": state, "corpus": corpus, "type": type, "q": q.strip(), "cursor": cursor}
    bare = {name: value.replace("\0", "") or None for name, value in kept.items()}
    listed = queries.documents(
        caller, limit=PAGE,
        cursor=cursor_of(cursor),
        states=parse_states([state], DocumentState),
        corpus=bare["corpus"], media_type=bare["type"], text=bare["q"],
    )  # fmt: skip
    return page(
        request, "documents.html", next=listed["next"],
        documents=with_distinct_names(listed["items"]),
        kept=kept, states=list(DocumentState), corpora=corpora.listed(caller),
        is_filtered=any(kept[name] for name in FILTERS), searched=queries.SEARCHED,
    )  # fmt: skip


@router.post("")
async def upload(request: Request, caller: Writer) -> Response:
    """Upload files by the plain form, without JavaScript; then show their job."""
    answer = await uploads.receive(request, caller)
    return back(answer.headers["Location"].removeprefix("/api"))


@router.get("/{document_id}")
async def one(
    request: Request,
    caller: Reader,
    document_id: requests.DocumentId,
    page_number: Annotated[int, Query(alias="page", ge=1, le=2**31 - 1)] = 1,
    q: Annotated[str, Query(max_length=2000)] = "",
    view: View = "",
    cursor: Asked = "",
) -> Response:
    """Show one document at a page, with the matches of a query highlighted."""
    kept = {"page": page_number, "view": view, "q": q.strip(), "cursor": cursor, "chunks": ""}
    # These are made out of whole pages, as the API's answers are; plain text is not.
    limiter = None if view == "text" else app_state_of(request).long_answers
    render = partial(_document, request, caller, document_id, kept)
    return await to_thread.run_sync(render, limiter=limiter)


def _document(request: Request, caller: Caller, document_id: int, kept: dict[str, Any]) -> Response:
    document = queries.document(caller, document_id)
    for each in document["generations"]:
        each["reuse_words"] = format.reuse(each["reused"])
    ranges = queries.page_ranges(caller, document_id=document_id)
    explained = explain_document.explain_document(caller, document_id)
    shown = document_content.displayed_page(caller, document_id, kept["page"], kept["q"])
    # The matches of a query are places in the plain text.
    view = kept["view"] or ("text" if kept["q"] else "structure")
    found: dict[str, Any] | None = None
    if view == "structure" and shown and shown["text"]:
        try:
            found = structure.of_page(caller, document_id, kept["page"])
        except TooLarge:  # the page, or one near it
            view = "text"
    elif view == "tables":
        found = structure.tables(caller, document_id, cursor_of(kept["cursor"]))
    elif view == "outline":
        found = structure.outline(caller, document_id)
    return page(
        request, "document.html", document=document, explained=explained,
        reuse_lines=[explained["reuse"]] if explained["reuse"] else [],
        page=shown, view=view, found=found, kept=kept,
        attempts=queries.attempts_of_document(caller, document_id),
        **page_range_strip.shown(ranges),
    )  # fmt: skip


@router.get("/{document_id}/delete")
def ask_to_delete(request: Request, caller: Writer, document_id: requests.DocumentId) -> Response:
    """Ask for confirmation before deleting a document."""
    found: dict[str, Any] = queries.document(caller, document_id)
    return page(
        request, "confirm.html", question=f"Delete {found['name'][:200]}?",
        consequence="It is removed from search now; its pages and file are deleted later. If its "
        "source still lists it, the next ingest adds it again.",
        action=f"/documents/{document_id}/delete", answer="Yes, delete", is_risky=True,
        to=f"/documents/{document_id}", fields=[],
    )  # fmt: skip


@router.post("/{document_id}/delete")
def delete(caller: Writer, document_id: requests.DocumentId) -> Response:
    """Delete a document that no job is working on."""
    documents.delete(caller, document_id)
    return back("/documents", "delete")


@router.post("/{document_id}/reindex")
def reindex(
    caller: Writer, document_id: requests.DocumentId, to: Annotated[str, Form()] = ""
) -> Response:
    """Index a document again as a new generation."""
    documents.reindex(caller, document_id, {})
    return back(to or f"/documents/{document_id}", "reindex")
