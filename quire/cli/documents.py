"""`quire documents`: lists documents."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire import format
from quire.cli import console, options, session
from quire.model.states import DocumentState

if TYPE_CHECKING:
    from rich.table import Table

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
Failed = Annotated[bool, typer.Option("--failed", help="Only failed documents.")]


def documents(
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
        "states": ["failed"] if failed else options.states(state, DocumentState),
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
    is_narrow = any(filters[name] for name in ("states", "corpus", "source"))
    if not page["items"]:
        none_yet = "No documents yet. Try: quire ingest FOLDER"
        console.say("No document matches." if is_narrow else none_yet)
        return
    console.show(_drawn(page))
    if page["next"]:
        more = " ".join([*sys.argv[1:], "--cursor", page["next"]]) if is_narrow else ""
        console.say(f"More: {'quire ' + more if more else '--cursor ' + page['next']}")


def _drawn(page: dict[str, Any]) -> "Table":
    from rich.text import Text

    drawn = console.table(
        "ID", "NAME", "TYPE", "STATE", "PAGES", "CHUNKS", "CORPORA", "DETAIL",
        right=("ID", "PAGES", "CHUNKS"), wide="DETAIL",
    )  # fmt: skip
    for each, name in zip(page["items"], format.distinct_names(page["items"]), strict=True):
        state = format.document_state(each)
        drawn.add_row(
            str(each["id"]),
            format.one_line(name, 60),
            format.media_type(each["media_type"]),
            Text(state.replace("_", " "), style=console.colour(state)),
            "" if each["pages"] is None else f"{each['pages']:,}",
            "" if each["chunks"] is None else f"{each['chunks']:,}",
            format.one_line(", ".join(each["corpora"]), 30),
            _detail(each),
        )
    return drawn


def _detail(each: dict[str, Any]) -> str:
    if each["error"]:
        return format.file_error(each["error"], each["name"])
    if each["page_errors"]:
        return f"{format.count(each['page_errors'], 'page')} could not be read"
    if each["locked"]:
        return f"job {each['job_id']}"
    return "deleted from its source" if each["gone_at"] else ""
