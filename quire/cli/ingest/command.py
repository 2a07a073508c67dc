"""`quire ingest`: fetches, reads and indexes documents, with or without a running server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire import format
from quire.cli import console, options, session
from quire.errors import Refused

if TYPE_CHECKING:
    from quire.control.ingest import IngestRequest, PreviewItem

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="Files, folders, quoted glob patterns, https://, gdrive:ID, s3://, gs:// or az://.",
    ),
]
Corpus = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Add the documents to this corpus. It is created if missing."
    ),
]
Include = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB", help="Only matching files, as in '*.pdf'. Repeatable."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB", help="Skip matching files, as in 'drafts/**'. Repeatable."),
]
Hidden = Annotated[
    bool, typer.Option("--hidden", help="Include files whose names start with a dot.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Reindex files even if they have not changed.")
]
RetryFailed = Annotated[
    bool,
    typer.Option("--retry-failed", help="Also retry failed files that have not changed."),
]
Wait = Annotated[
    bool,
    typer.Option("--wait/--no-wait", help="Wait until it finishes. Exits with 1 if a file failed."),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Only list which files are new, changed, unchanged or gone."),
]
Watch = Annotated[
    bool, typer.Option("--watch", help="Keep ingesting new and changed files until Ctrl-C.")
]
Priority = Annotated[int, typer.Option(metavar="N", help="1 (highest) to 10 (lowest).")]


def ingest(
    sources: Sources,
    corpus: Corpus = None,
    set: options.Set = None,
    include: Include = None,
    exclude: Exclude = None,
    hidden: Hidden = False,
    force: Force = False,
    retry_failed: RetryFailed = False,
    wait: Wait = True,
    dry_run: DryRun = False,
    watch: Watch = False,
    priority: Priority = options.DEFAULT_PRIORITY,
    json: options.Json = False,
) -> None:
    """Ingest files, folders, URLs and buckets.

    Fetches documents, extracts their text (with OCR if needed), chunks, embeds and indexes it.
    Files that have not changed since they were indexed, or since they failed, are skipped. On the
    embedded database it runs its own worker if there is none.
    """
    from quire.cli.ingest import follow
    from quire.control import corpora, submission_checks
    from quire.control import ingest as control

    submission_checks.priority(priority)
    settings = session.load_settings()
    if settings.url:
        needs_database = set or force or retry_failed or dry_run or watch
        is_plain = not needs_database and priority == options.DEFAULT_PRIORITY
        raise typer.Exit(
            _send(sources, include, exclude, hidden, corpus, wait, json, is_plain=is_plain)
        )
    session.load_plugins()
    request = control.check_request(
        sources,
        settings.for_children,
        corpus=corpus,
        settings=options.pairs(set),
        force=force,
        retry_failed=retry_failed,
        options={"include": include or [], "exclude": exclude or [], "hidden": hidden},
    )
    if lacking := corpora.lacking(request.settings, settings.embed_url):
        console.note(lacking)
    if dry_run:
        _preview(request, json)
        return
    if not settings.database_url:
        session.check_extras(settings, request.sources)  # the worker runs on this machine
    with session.create_app() as app:
        if watch:
            from quire.cli.ingest import watch as ingest_watch

            ingest_watch.run(app, request, priority)
            return
        [job_id] = app.submit_many([request.submission(priority)])
        if not wait:
            _say_submitted(job_id, json)
            return
        code = follow.to_the_end(app, job_id, json=json, request=request)
    raise typer.Exit(code)


def _send(
    sources: list[str],
    include: list[str] | None,
    exclude: list[str] | None,
    hidden: bool,
    corpus: str | None,
    wait: bool,
    json: bool,
    *,
    is_plain: bool,
) -> int:
    from quire.cli.ingest import remote
    from quire.fetch.items import SourceOptions

    if not is_plain:
        raise Refused(
            "ingest: --set, --force, --retry-failed, --dry-run, --watch and --priority need the "
            "database. Nothing was uploaded. Run it on the server's machine, or unset QUIRE_URL."
        )
    settings = session.load_settings()
    options_of_source = SourceOptions(tuple(include or ()), tuple(exclude or ()), hidden)
    with session.connect_to_server(settings) as server:
        return remote.run(server, sources, options_of_source, corpus=corpus, wait=wait, json=json)


def _say_submitted(job_id: int, json: bool) -> None:
    if json:
        console.as_json({"id": job_id})
        return
    console.say(f"job {job_id} submitted.")
    console.say(f"Follow it with: quire job show {job_id} --watch")


def _preview(request: "IngestRequest", json: bool) -> None:
    from quire.control import ingest as control

    settings = session.load_settings()
    is_begun = bool(settings.database_url) or Path(settings.home / "quire.db").exists()
    if is_begun:
        with session.open_app() as app:
            _list(control.preview(app.caller, settings.for_children, request), json)
    else:
        _list(control.preview(None, settings.for_children, request), json)


def _list(found: Any, json: bool) -> None:
    from quire.control.ingest import counts_text

    counts: dict[str, int] = {}
    items = []
    for each in found:
        counts[each.verdict] = counts.get(each.verdict, 0) + 1
        if json:
            items.append(each._asdict())
        else:
            console.say(_line(each))
    if json:
        console.as_json({"items": items, "counts": counts})
        return
    console.say(f"{counts_text(counts)}. Nothing was fetched or stored.")


def _line(each: "PreviewItem") -> str:
    why = "" if each.verdict in ("new", "same", "gone") else f"  ({format.one_line(each.why)})"
    return f"{each.verdict:<9} {format.one_line(each.uri, 300)}{why}"
