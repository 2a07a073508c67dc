"""Document pages: the gallery with upload, and one document with its pages and history."""

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request, Response

from quire import format
from quire.api.auth.authenticate import Reader, Writer
from quire.api.models import requests
from quire.api.routes import uploads
from quire.control import corpora, document_content, documents, queries
from quire.control.explain import document as explain_document
from quire.model.states import DocumentState, parse_states
from quire.web import page_range_strip
from quire.web.rendering import PageRoute, back, cursor_of, page, with_distinct_names

router = APIRouter(prefix="/documents", route_class=PageRoute, include_in_schema=False)
PAGE = 24
FILTERS = ("state", "corpus", "type", "q")

Asked = Annotated[str, Query(max_length=200)]


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
def one(
    request: Request,
    caller: Reader,
    document_id: requests.DocumentId,
    page_number: Annotated[int, Query(alias="page", ge=1, le=2**31 - 1)] = 1,
    q: Annotated[str, Query(max_length=2000)] = "",
) -> Response:
    """Show one document at a page, with the matches of a query highlighted."""
    document = queries.document(caller, document_id)
    for each in document["generations"]:
        each["reuse_words"] = format.reuse(each["reused"])
    ranges = queries.page_ranges(caller, document_id=document_id)
    explained = explain_document.explain_document(caller, document_id)
    return page(
        request, "document.html", document=document, explained=explained,
        reuse_lines=[explained["reuse"]] if explained["reuse"] else [],
        page=document_content.displayed_page(caller, document_id, page_number, q), 
        attempts=queries.attempts_of_document(caller, document_id),
        kept={"page": page_number, "q": q.strip(), "chunks": ""}, **page_range_strip.shown(ranges),
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
