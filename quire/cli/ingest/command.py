"""`quire ingest`: fetches, reads and indexes documents, with or without a running server."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire import format
from quire.cli import console, options, session
from quire.errors import Refused

if TYPE_CHECKING:
    from quire.control.ingest import IngestRequest, PreviewItem
    from quire.settings import Settings

Sources = Annotated[
    list[str],
    options.argument(
        "SOURCE",
        "Files, folders, quoted glob patterns, https://, gdrive:ID, s3://, gs:// or az://.",
    ),
]
Corpus = Annotated[
    str | None,
    options.option("NAME", "Add the documents to this corpus. It is created if missing."),
]
Include = Annotated[
    list[str] | None, options.option("GLOB", "Only matching files, as in '*.pdf'. Repeatable.")
]
Exclude = Annotated[
    list[str] | None, options.option("GLOB", "Skip matching files, as in 'drafts/**'. Repeatable.")
]
Hidden = Annotated[bool, options.flag("Include files whose names start with a dot.", "--hidden")]
FollowLinks = Annotated[
    bool,
    options.flag(
        "Follow symbolic links, and shortcuts of Google Drive, out of the folder.", "--follow-links"
    ),
]
Force = Annotated[bool, options.flag("Reindex files even if they have not changed.", "--force")]
RetryFailed = Annotated[
    bool, options.flag("Also retry failed files that have not changed.", "--retry-failed")
]
Wait = Annotated[
    bool,
    options.flag("Wait until it finishes. Exits with 1 if a file failed.", "--wait/--no-wait"),
]
DryRun = Annotated[
    bool, options.flag("Only list which files are new, changed, unchanged or gone.", "--dry-run")
]
Watch = Annotated[
    bool, options.flag("Keep ingesting new and changed files until Ctrl-C.", "--watch")
]
Priority = Annotated[int, options.option("N", "1 (highest) to 10 (lowest).")]


def ingest(
    sources: Sources,
    corpus: Corpus = None,
    set: options.Set = None,
    include: Include = None,
    exclude: Exclude = None,
    hidden: Hidden = False,
    follow_links: FollowLinks = False,
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
    from quire.cli.ingest import upload
    from quire.control import corpora, submission_checks
    from quire.control import ingest as control
    from quire.fetch.items import SourceOptions

    submission_checks.priority(priority)
    settings = session.load_settings()
    if settings.url:
        if set or force or retry_failed or dry_run or watch or priority != options.DEFAULT_PRIORITY:
            raise Refused(
                "ingest: --set, --force, --retry-failed, --dry-run, --watch and --priority need "
                "the database. Nothing was uploaded. Run it on the server's machine, or unset "
                "QUIRE_URL."
            )
        chosen = SourceOptions(
            tuple(include or ()), tuple(exclude or ()), hidden, follow_links=follow_links
        )
        raise typer.Exit(upload.run(settings, sources, chosen, corpus=corpus, wait=wait, json=json))
    session.load_plugins()
    request = control.check_request(
        sources,
        settings.for_children,
        corpus=corpus,
        settings=options.pairs(set),
        force=force,
        retry_failed=retry_failed,
        options={
            "include": include or [],
            "exclude": exclude or [],
            "hidden": hidden,
            **({"follow_links": True} if follow_links else {}),
        },
    )
    if lacking := corpora.lacking(request.settings, settings.embed_url):
        console.note(lacking)
    if dry_run:
        _preview(request, settings, json)
    else:
        _run(request, settings, priority, wait=wait, watch=watch, json=json)


def _run(
    request: "IngestRequest", settings: "Settings", priority: int, *, wait: bool, watch: bool,
    json: bool,
) -> None:  # fmt: skip
    from quire.cli.ingest import follow

    if not settings.database_url:
        session.check_extras(settings, request.sources)  # the worker runs on this machine
    with session.create_app() as app:
        if watch:
            from quire.cli.ingest import watch as ingest_watch

            ingest_watch.run(app, request, priority)
            return
        [job_id] = app.submit_many([request.submission(priority)])
        if wait:
            raise typer.Exit(follow.to_the_end(app, job_id, json=json, request=request))
    how = f"Follow it with: quire job show {job_id} --watch"
    console.answer({"id": job_id}, f"job {job_id} submitted.\n{how}", json=json)


def _preview(request: "IngestRequest", settings: "Settings", json: bool) -> None:
    from quire.control import ingest as control

    is_begun = bool(settings.database_url) or Path(settings.home / "quire.db").exists()
    with session.open_app() if is_begun else contextlib.nullcontext() as app:
        caller = app.caller if app else None
        _list(control.preview(caller, settings.for_children, request), json)


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
