"""Documents: list, show, re-index, delete; their pages, chunks, files and images."""

from collections.abc import Callable
from typing import Annotated, Any

from anyio import to_thread
from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, PlainTextResponse, RedirectResponse
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from quire.api import page_renderer
from quire.api.auth.authenticate import CorpusReader, Reader, Writer
from quire.api.models import requests
from quire.api.models import responses as models
from quire.api.problems import problem
from quire.api.responses import (
    ApiResponse,
    Router,
    matches_etag,
    not_modified,
    problem_responses,
    with_etag,
)
from quire.api.state import AppState, app_state_of
from quire.api.tenant_turns import end_turn
from quire.control import document_content as content
from quire.control import document_structure as structure
from quire.control import documents as verbs
from quire.control import queries
from quire.control.explain.document import explain_document
from quire.fetch.names import safe_name
from quire.model.states import DocumentState, parse_states

router = Router(prefix="/api/documents", tags=["documents"])
#: Types that are shown inline; others are downloaded. SVG and HTML can contain scripts.
SHOWN = {
    "application/pdf": "application/pdf",
    "image/png": "image/png",
    "image/jpeg": "image/jpeg",
    "image/gif": "image/gif",
    "image/webp": "image/webp",
    "image/bmp": "image/bmp",
    "text/plain": "text/plain",
    "text/markdown": "text/plain",
    "text/csv": "text/plain",
}
_ALONE = {
    "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-cache",
}


def _content(media_type: str, *failures: int) -> dict[int | str, dict[str, Any]]:
    """Document the responses of a route that sends a file."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    return {
        200: {"description": "The bytes", "content": content},
        304: {"description": "Not modified"},
        307: {"description": "A presigned URL (QUIRE_BLOB_PRESIGNED_URLS)"},
        **problem_responses(404, 410, 502, *failures),
    }


_BYTES: dict[str, Any] = {
    "response_class": FileResponse,
    "responses": {**_content("*/*", 400, 416), 206: {"description": "The requested range"}},
}
_PICTURE: dict[str, Any] = {"response_class": Response, "responses": _content("image/png")}


class _Stored(FileResponse):
    chunk_size = 1 << 20

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused: list[Message] = []

        async def pass_on(message: Message) -> None:
            if refused or message.get("status", 200) >= 400:
                refused.append(message)
            else:
                await send(message)

        await super().__call__(scope, receive, pass_on)
        if refused:  # Starlette answers invalid ranges in plain text
            status = refused[0]["status"]
            told = Headers(raw=refused[0]["headers"]).get("content-range")
            answer = problem(
                status, "Range not satisfiable" if status == 416 else "Invalid request",
                "range: outside of the file. Request bytes=FIRST-LAST, or the whole file.",
                headers={"Content-Range": told} if told else None,
            )  # fmt: skip
            await answer(scope, receive, send)


@router.on("GET", "", "List documents", models.ListOf[models.DocumentSummary], 404)
def listing(
    caller: CorpusReader,
    state: requests.States = None,
    corpus: requests.Text = None,
    source: requests.LongText = None,
    name: requests.LongText = None,
    media_type: requests.Text = None,
    parent_id: Annotated[int | None, Query(ge=1, le=requests.LARGEST_ID)] = None,
    limit: requests.Limit = 50,
    cursor: requests.Cursor = None,
) -> Response:
    """List the documents that match, latest first."""
    states = parse_states(state, DocumentState)
    page = queries.documents(
        caller, limit=limit, cursor=cursor, states=states,
        corpus=corpus, source=source, name=name, media_type=media_type, parent_id=parent_id,
    )  # fmt: skip
    return ApiResponse(page)


@router.on("GET", "/{document_id}", "Show a document", models.DocumentDetails, 404)
def show(request: Request, caller: CorpusReader, document_id: requests.DocumentId) -> Response:
    """Show a document with its page errors and generations."""
    return with_etag(request, queries.document(caller, document_id))


@router.on("DELETE", "/{document_id}", "Delete a document", None, 404, 409, status=204)
def delete(caller: Writer, document_id: requests.DocumentId) -> Response:
    """Delete a document that no job is working on; its source is not changed."""
    verbs.delete(caller, document_id)
    return Response(status_code=204)


@router.on(
    "POST", "/{document_id}/reindex", "Index a document again", models.Created, 404, 409, status=201
)
def reindex(
    caller: Writer, document_id: requests.DocumentId, body: requests.Reindex | None = None
) -> Response:
    """Index a document again from its stored file; the live version stays until it succeeds."""
    how = body or requests.Reindex()
    job_id = verbs.reindex(
        caller, document_id, how.settings,
        force=how.force, priority=how.priority,
    )  # fmt: skip
    return ApiResponse({"id": job_id}, 201, headers={"Location": f"/api/jobs/{job_id}"})


@router.on("GET", "/{document_id}/explain", "Explain a document", models.DocumentExplanation, 404)
def explain(caller: Reader, document_id: requests.DocumentId) -> Response:
    """Explain what a document waits for, why it was indexed, and what was reused."""
    return ApiResponse(explain_document(caller, document_id))


@router.on(
    "GET",
    "/{document_id}/generations",
    "List a document's generations",
    models.ListOf[models.Generation],
    404,
)
def generations(caller: CorpusReader, document_id: requests.DocumentId) -> Response:
    """List the latest generations of a document, newest first; there is no next page."""
    found = queries.document(caller, document_id)
    return ApiResponse({"items": found["generations"], "next": None})


@router.on(
    "GET", "/{document_id}/pages", "List a document's pages", models.ListOf[models.PageSummary], 404
)
def pages(
    caller: CorpusReader,
    document_id: requests.DocumentId,
    limit: requests.Limit = 50,
    cursor: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
) -> Response:
    """List the pages of a document and how each was read."""
    return ApiResponse(verbs.pages(caller, document_id, limit=limit, cursor=cursor))


@router.on("GET", "/{document_id}/pages/{number}", "Show a page", models.PageDetails, 404)
async def page(
    request: Request,
    caller: CorpusReader,
    document_id: requests.DocumentId,
    number: requests.PageNumber,
) -> Response:
    """Show a page with its text and the bounding boxes of its words, in points."""
    return await _long(request, lambda: content.page(caller, document_id, number))


@router.get("/{document_id}/pages/{number}/image", summary="Render a page", **_PICTURE)
async def image(
    request: Request,
    caller: CorpusReader,
    document_id: requests.DocumentId,
    number: requests.PageNumber,
    width: Annotated[int, Query(ge=16, le=2400, description="Width in pixels.")] = 900,
) -> Response:
    """Render a page as PNG; only for PDFs and images."""
    app_state = app_state_of(request)
    found = await run_in_threadpool(content.drawable, caller, document_id, number)
    tag = f'"{found.digest[:32]}-{number}-{width}"'
    if matches_etag(request, tag):
        return not_modified(tag)

    def draw() -> bytes:
        return page_renderer.shared.draw(
            app_state.blobs.checked_path(found.digest, found.size),
            str(found.media_type),
            number,
            width,
            tenant=caller.tenant,
            scratch=app_state.settings.home / "scratch",
            is_confined=app_state.settings.sandbox != "off",
        )

    def respond() -> Response:
        if _is_linked(request, app_state):
            name = f"{number}-{width}.png"
            if link := app_state.blobs.presigned_image(found.digest, name, draw):
                return RedirectResponse(link, 307, headers={"Cache-Control": "no-store"})
        return Response(draw(), media_type="image/png", headers={**_ALONE, "ETag": tag})

    queue = app_state.drawing
    end_turn(request)
    with queue.place(caller.tenant):
        # In a thread of its own: those of the pool are for all routes.
        return await to_thread.run_sync(respond, limiter=queue.limiter)


@router.on("GET", "/{document_id}/tokens", "Words and boxes, as PAWLs", Any, 404)
async def tokens(
    request: Request,
    caller: CorpusReader,
    document_id: requests.DocumentId,
    version: Annotated[int, Query(ge=1, le=2, description="1 (plain) or 2 (compact).")] = 1,
) -> Response:
    """Return the words of all pages with their bounding boxes, in PAWLs format."""
    most = verbs.MOST_WORDS
    return await _long(request, lambda: verbs.tokens(caller, document_id, version, most=most))


@router.on(
    "GET", "/{document_id}/chunks", "List a document's chunks", models.ListOf[models.Chunk], 404
)
def chunks(
    caller: CorpusReader,
    document_id: requests.DocumentId,
    limit: requests.Limit = 50,
    cursor: Annotated[str | None, Query(pattern=r"^\d{1,9}\.\d{1,9}$")] = None,
) -> Response:
    """List the chunks of a document in text order."""
    return ApiResponse(content.chunks(caller, document_id, limit=limit, cursor=cursor))


@router.on(
    "GET",
    "/{document_id}/pages/{number}/blocks",
    "Show the structure of a page",
    models.PageStructure,
    404,
)
async def blocks(
    request: Request,
    caller: CorpusReader,
    document_id: requests.DocumentId,
    number: requests.PageNumber,
) -> Response:
    """Show the headings, paragraphs, tables and running lines of a page in reading order."""
    return await _long(request, lambda: structure.of_page(caller, document_id, number))


@router.on(
    "GET", "/{document_id}/outline", "Show a document's outline", models.DocumentOutline, 404
)
async def outline(
    request: Request, caller: CorpusReader, document_id: requests.DocumentId
) -> Response:
    """Show the headings of a document, in order, with their pages."""
    return await _long(request, lambda: structure.outline(caller, document_id))


@router.on(
    "GET",
    "/{document_id}/tables",
    "List a document's tables",
    models.ListOf[models.DocumentTable],
    404,
)
async def tables(
    request: Request,
    caller: CorpusReader,
    document_id: requests.DocumentId,
    limit: requests.Limit = 50,
    cursor: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
) -> Response:
    """List tables with their cells. All tables of a page are listed together."""
    return await _long(
        request, lambda: structure.tables(caller, document_id, limit=limit, cursor=cursor)
    )


@router.get(
    "/{document_id}/markdown",
    summary="Get a document as Markdown",
    response_class=PlainTextResponse,
    responses={
        200: {"content": {"text/markdown": {"schema": {"type": "string"}}}},
        **problem_responses(404),
    },
)
async def as_markdown(
    request: Request, caller: CorpusReader, document_id: requests.DocumentId
) -> Response:
    """Get the text of a document as Markdown, without running headers and footers."""

    def respond() -> Response:
        text = structure.as_markdown(caller, document_id, most=structure.MOST_MARKDOWN)
        return PlainTextResponse(text, media_type="text/markdown", headers=_ALONE)

    limiter = app_state_of(request).long_answers
    return await to_thread.run_sync(respond, limiter=limiter)


async def _long(request: Request, make: Callable[[], Any]) -> Response:
    """Respond with what is made out of whole pages; only two such answers at a time are."""
    limiter = app_state_of(request).long_answers
    return await to_thread.run_sync(lambda: with_etag(request, make()), limiter=limiter)


@router.get("/{document_id}/file", summary="Get the original file", **_BYTES)
def original(
    request: Request, caller: CorpusReader, document_id: requests.DocumentId, download: bool = False
) -> Response:
    """Download the original file; supports ranges. Only safe types are shown inline."""
    return _file(request, content.original_of(caller, document_id), is_saved=download)


@router.get("/{document_id}/thumbnail", summary="Get a thumbnail of page 1", **_BYTES)
def thumbnail(request: Request, caller: CorpusReader, document_id: requests.DocumentId) -> Response:
    """Get a JPEG of the first page."""
    return _file(request, content.thumbnail_of(caller, document_id), is_saved=False)


def _file(request: Request, found: content.Kept, *, is_saved: bool) -> Response:
    app_state = app_state_of(request)
    tag = f'"{found.digest[:32]}"'
    if matches_etag(request, tag):
        return not_modified(tag)
    shown = None if is_saved else SHOWN.get(found.media_type or "")
    kind = shown or "application/octet-stream"
    if _is_linked(request, app_state):
        link = app_state.blobs.presigned_url(found.digest, found.name, kind, inline=bool(shown))
        if link is not None:
            return RedirectResponse(link, 307, headers={"Cache-Control": "no-store"})
    return _Stored(
        app_state.blobs.checked_path(found.digest, found.size),
        media_type=kind,
        filename=safe_name(found.name),
        content_disposition_type="inline" if shown else "attachment",
        headers={**_ALONE, "ETag": tag},
    )


def _is_linked(request: Request, app_state: AppState) -> bool:
    """Tell whether to redirect to a presigned URL that the client may follow."""
    # The CSP forbids our own pages to show content of other origins.
    is_within_page = request.headers.get("sec-fetch-dest", "") not in ("", "document", "empty")
    return app_state.settings.blob_presigned_urls and not is_within_page
