"""`quire documents` and `quire document`: lists, shows, explains, saves, reindexes and deletes."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire import format
from quire.cli import console, options, session
from quire.errors import BadInput
from quire.model.states import DocumentState, parse_states

if TYPE_CHECKING:
    from rich.table import Table

    from quire.app import App
    from quire.fetch.blobs.backend import Blobs

States = Annotated[
    list[str] | None,
    options.option(
        "STATE",
        "Only documents in this state: not_indexed, queued, indexing, success or failed. "
        "Repeatable.",
        "--state",
    ),
]
Corpus = Annotated[str | None, options.option("NAME", "Only documents in this corpus.")]
Source = Annotated[str | None, options.option("URL", "Only documents from this source.")]
Failed = Annotated[bool, options.flag("Only failed documents.", "--failed")]


def listing(
    state: States = None,
    corpus: Corpus = None,
    source: Source = None,
    failed: Failed = False,
    limit: options.Limit = 50,
    cursor: options.Cursor = None,
    json: options.Json = False,
) -> None:
    """List documents, newest first."""
    filters: dict[str, Any] = {
        "state": ["failed"] if failed else parse_states(state, DocumentState),
        "corpus": corpus,
        "source": source,
        "limit": options.limit(limit),
        "cursor": options.cursor(cursor),
    }
    if source is not None and (path := Path(source).expanduser()).exists():
        filters["source"] = str(path.absolute())  # as `quire ingest` stored it
    with session.connect() as opened:
        page = opened.page_of_documents(**filters)
    if json:
        console.as_json(page)
        return
    is_narrow = any(filters[name] for name in ("state", "corpus", "source"))
    if not page["items"]:
        none_yet = "No documents yet. Try: quire ingest FOLDER"
        console.say("No document matches." if is_narrow else none_yet)
        return
    rows = [
        {
            "ID": str(each["id"]),
            "NAME": format.one_line(name, 60),
            "TYPE": format.media_type(each["media_type"]),
            "STATE": console.state(format.document_state(each)),
            "PAGES": each["pages"],
            "CHUNKS": each["chunks"],
            "CORPORA": format.one_line(", ".join(each["corpora"]), 30),
            "DETAIL": _detail(each),
        }
        for each, name in zip(page["items"], format.distinct_names(page["items"]), strict=True)
    ]
    console.show(console.table(rows, right=("ID", "PAGES", "CHUNKS"), wide="DETAIL"))
    if page["next"]:
        more = " ".join([*sys.argv[1:], "--cursor", page["next"]]) if is_narrow else ""
        console.say(f"More: {'quire ' + more if more else '--cursor ' + page['next']}")


def _detail(each: dict[str, Any]) -> str:
    if detail := format.file_detail(each):
        return detail
    if each["locked"]:
        return f"job {each['job_id']}"
    return "deleted from its source" if each["gone_at"] else ""


app = options.Group(
    "Show, explain, save, reindex or delete one document.", cls=options.OfIds, no_args_is_help=True
)
#: Page errors and generations shown in tables; `--json` has more.
FEW = 20
Page = Annotated[int, options.option("N", "Page number, starting at 1.", "--page")]
Target = Annotated[Path, options.argument("PATH", "File to write, or a folder.")]


@app.command()
def show(document: options.DocumentId, json: options.Json = False) -> None:
    """Show a document with its page errors and generations."""
    with session.connect() as opened:
        one = opened.document(document)
    if json:
        console.as_json(one)
        return
    state = format.document_state(one)
    console.say(f"document {one['id']}  {format.one_line(one['name'])}  {state.replace('_', ' ')}")
    console.show(_facts(one))
    if one["page_errors"]:
        console.say()
        console.show(_errors(one))
    if one["generations"]:
        console.say()
        console.show(_generations(one))


@app.command()
def pages(
    document: options.DocumentId,
    limit: options.Limit = 50,
    cursor: options.Cursor = None,
    json: options.Json = False,
) -> None:
    """List the pages of a document and how each was read."""
    from quire.control import documents

    with session.open_app() as opened:
        page = documents.pages(
            opened.caller, document, limit=options.limit(limit), cursor=options.cursor(cursor)
        )
    if json:
        console.as_json(page)
        return
    rows = [
        {
            "PAGE": each["page"],
            "READ BY": each["via"],
            "LANGUAGE": each["language"],
            "WORDS": each["words"],
            "TOOK": "" if each["seconds"] is None else format.span(each["seconds"]),
            "DETAIL": format.one_line(each["error"] or each["label"]),
        }
        for each in page["items"]
    ]
    console.show(console.table(rows, right=("PAGE", "WORDS", "TOOK"), wide="DETAIL"))
    if page["next"]:
        console.say(f"More: quire document pages {document} --cursor {page['next']}")


@app.command()
def save(
    document: options.DocumentId,
    path: Target,
    force: Annotated[bool, options.flag("Overwrite an existing file.", "--force")] = False,
) -> None:
    """Save the original file to a path or into a folder."""
    from quire.control import documents

    with session.open_app() as opened:
        goal = documents.save(opened.caller, _blobs(opened), document, path, replace=force)
    console.say(f"Saved as {format.one_line(goal, 1000)}")


@app.command()
def reindex(
    document: options.DocumentId,
    force: Annotated[
        bool,
        options.flag("Reindex even while it is being indexed: cancels the running job.", "--force"),
    ] = False,
    set: options.Set = None,
    wait: Annotated[
        bool,
        options.flag("Wait until it finishes. Exits with 1 unless it succeeded.", "--wait"),
    ] = False,
    json: options.Json = False,
) -> None:
    """Reindex a document from its stored file.

    With --set, the document gets settings of its own. The current version stays searchable until
    the new one has been indexed.
    """
    from quire.cli.ingest import follow
    from quire.control import documents

    session.load_plugins()
    with session.open_app() as opened:
        job_id = documents.reindex(opened.caller, document, options.pairs(set), force=force)
        if wait:
            raise typer.Exit(follow.to_the_end(opened, job_id, json=json))
    if json:
        console.as_json({"id": job_id})
    else:
        console.say(f"job {job_id} reindexes document {document}.")
        console.say(f"Follow it with: quire job show {job_id} --watch")


@app.command()
def delete(document: options.DocumentId) -> None:
    """Delete a document and its index entries. The source is not touched."""
    from quire.control import documents

    with session.open_app() as opened:
        documents.delete(opened.caller, document)
    console.say(f"document {document} deleted.")


@app.command()
def explain(document: options.DocumentId, json: options.Json = False) -> None:
    """Explain the state of a document, and what happens next."""
    from quire.control.explain.document import explain_document

    with session.open_app() as opened:
        answer = explain_document(opened.caller, document)
    if json:
        console.as_json(answer)
        return
    name = format.one_line(answer["name"], 80)
    console.say(f"document {document}, {name}: {answer['state'].replace('_', ' ')}.")
    for name in ("text", "why", "reuse", "next"):
        if answer[name]:
            console.say(format.clean(answer[name]))


@app.command()
def read(
    document: options.DocumentId,
    page: Page,
    text: Annotated[bool, options.flag("Print the page's text.", "--text")] = False,
    json: options.Json = False,
) -> None:
    """Read one page in this process, to debug it.

    A page that crashes or hangs a worker does so here too.
    """
    from quire.control import documents

    session.load_plugins()
    with session.open_app() as opened:
        found = documents.read_page(opened.caller, _blobs(opened), document, page)
    one: Any = found.page
    error = getattr(one, "error", None)
    if json:
        names = ("text", "width", "height", "via", "label")
        known = {name: getattr(one, name, None) for name in names}
        console.as_json({"page": page, **known, "error": error, "seconds": found.seconds})
    elif error is None:
        size = f", {one.width:g} × {one.height:g} points" if one.width else ""
        words = format.count(len(one.text.split()), "word")
        took = format.span(found.seconds)
        console.say(f"page {page}: {words} ({one.via}){size}, in {took}")
        if text:
            console.say(format.clean(one.text))
    else:
        console.say(f"page {page}: {format.one_line(error, 1000)}")
    if error is not None:
        raise typer.Exit(1)


@app.command()
def markdown(document: options.DocumentId) -> None:
    """Print a document as Markdown, without running headers and footers."""
    from quire.control import document_structure

    with session.open_app() as opened:
        console.say(format.clean(document_structure.as_markdown(opened.caller, document)))


@app.command()
def outline(document: options.DocumentId, json: options.Json = False) -> None:
    """Print the headings of a document with their pages."""
    from quire.control import document_structure

    with session.open_app() as opened:
        found = document_structure.outline(opened.caller, document)
    if json:
        console.as_json(found)
        return
    for each in found["items"]:
        title = format.one_line(each["title"], 100)
        console.say(f"{'  ' * (each['level'] - 1)}{title}  (page {each['page']})")
    if not found["items"]:
        console.say("No headings were found.")


@app.command()
def tables(
    document: options.DocumentId,
    page: Annotated[int | None, options.option("N", "Only tables of this page.", "--page")] = None,
    csv: Annotated[
        bool, options.flag("Print as CSV, a blank line between tables.", "--csv")
    ] = False,
    json: options.Json = False,
) -> None:
    """Print the tables of a document: as Markdown, CSV or JSON."""
    from quire.control import document_structure

    with session.open_app() as opened:
        found = document_structure.tables_as_text(opened.caller, document, page=page)
        if json:
            console.as_json([each.details for each in found])
            return
    if not found:
        console.say("No tables were found.")
    for each in found:
        if csv:
            is_next = each is not found[0] and not each.details["continues"]
            console.say(("\n" if is_next else "") + each.csv.rstrip("\r\n"))
        else:
            console.say(f"Page {each.details['page']}, table {each.details['number']}\n")
            console.say(format.clean(each.markdown))
            console.say()


@app.command()
def tokens(
    document: options.DocumentId,
    version: Annotated[int, options.option("N", "1 (plain) or 2 (compact).", "--version")] = 1,
) -> None:
    """Print words with their positions, as PAWLs JSON."""
    from quire.control import documents

    if version not in (1, 2):
        raise BadInput(f"--version: {version} is not 1 or 2.")
    with session.open_app() as opened:
        console.as_json(documents.tokens(opened.caller, document, version), on_one_line=True)


def _blobs(opened: "App") -> "Blobs":
    from quire.fetch.blobs.backend import open_blobs

    return open_blobs(opened.settings.for_children)


def _facts(one: dict[str, Any]) -> "Table":
    now = time.time()

    def when(name: str) -> str:
        return format.when(one[name], now) if one[name] else ""

    def number(name: str) -> str:
        return "" if one[name] is None else f"{one[name]:,}"

    live = one["live_generation"]
    searchable = "not searchable" if live is None else f"generation {live} is searchable"
    facts = {
        "location": format.one_line(one["uri"], 500),
        "source": format.one_line(one["source"], 500),
        "type": format.one_line(one["media_type"]),
        "notice": one["notice"] or "",
        "size": format.size(one["size"]) if one["size"] is not None else "",
        "corpora": ", ".join(map(format.one_line, one["corpora"])),
        "settings": format.short_json(one["settings"]) if one["settings"] else "",
        "pages": number("pages"),
        "chunks": number("chunks"),
        "error": format.one_line(one["error"], 1000),
        "reuse": format.reuse({**one["reused"], "whole": int(one["reused"]["whole"])}),
        "generation": f"{one['generation']} ({searchable})",
        "started": when("processing_started_at"),
        "finished": when("processing_finished_at"),
        "gone": f"deleted from its source {when('gone_at')}" if one["gone_at"] else "",
        "job": "" if one["job_id"] is None else str(one["job_id"]),
        "sha256": one["digest"] or "",
    }
    return console.facts(facts)


def _errors(one: dict[str, Any]) -> "Table":
    errors = one["page_errors"]
    rows = [
        {
            "PAGE": str(each["page"]),
            "OUTCOME": each["kind"],
            "ERROR": format.one_line(each["error"]),
            "REPRODUCE WITH": each["command"],
        }
        for each in errors[:FEW]
    ]
    return console.table(rows, right=("PAGE",), wide="ERROR", more=max(len(errors) - FEW, 0))


def _generations(one: dict[str, Any]) -> "Table":
    from quire.model.admission import reason_text

    rows = [
        {
            "GENERATION": str(each["generation"]),
            "STATE": each["state"],
            "JOB": each["job_id"] and str(each["job_id"]),
            "PAGES": each["pages"],
            "CHUNKS": each["chunks"],
            "CREATED": format.when(each["created_at"]),
            "REASON": format.one_line(each["error"] or reason_text(each["why"])),
        }
        for each in one["generations"][:FEW]
    ]
    return console.table(rows, right=("GENERATION", "JOB", "PAGES", "CHUNKS"), wide="REASON")
