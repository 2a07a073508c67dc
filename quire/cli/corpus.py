"""`quire corpus`: named sets of documents and their pipeline settings."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire import format
from quire.cli import console, options, session
from quire.control import corpora
from quire.errors import BadInput

if TYPE_CHECKING:
    from quire.control.corpus_reindex import Plan
    from quire.settings import Settings

app = options.Group(
    "Create, list, show, change, reindex or delete corpora.",
    cls=options.OfNames,
    no_args_is_help=True,
)
Name = Annotated[str, options.argument("NAME", "Name of the corpus.")]
File = Annotated[
    Path | None, options.argument("FILE", "CSV: words that mean the same, a row each.")
]
Starter = Annotated[
    str | None, options.option("NAME", "A list that is part of Quire: finance.", "--list")
]
Remove = Annotated[bool, options.flag("Remove the synonyms.", "--remove")]
Pairs = Annotated[list[str], options.argument("KEY=VALUE", "Settings, as in chunk_tokens=200.")]


@app.command()
def create(name: Name, set: options.Set = None, json: options.Json = False) -> None:
    """Create a corpus, optionally with its own settings."""
    session.load_plugins()
    with session.create_app() as opened:
        corpora.create(opened.caller, name, given := options.pairs(set))
        one = corpora.shown(opened.caller, name)
        _warn(given, opened.settings)
    how = f"quire ingest SOURCE --corpus {shlex.quote(name)}"
    console.answer(one, f"corpus {name} created. Add documents with: {how}", json=json)


@app.command("list")
def listing(json: options.Json = False) -> None:
    """List the corpora."""
    with session.open_app() as opened:
        found = corpora.listed(opened.caller)
    console.listing(
        found,
        lambda each: {
            "NAME": format.one_line(each["name"], 50),
            "DOCUMENTS": each["documents"],
            "SETTINGS": format.one_line(
                ", ".join(f"{key}={value}" for key, value in sorted(each["settings"].items()))
            ),
        },
        right=("DOCUMENTS",),
        wide="SETTINGS",
        json=json,
        empty="No corpora yet. Try: quire corpus create NAME",
    )


@app.command()
def show(name: Name, json: options.Json = False) -> None:
    """Show a corpus with all its pipeline settings."""
    with session.open_app() as opened:
        one = corpora.shown(opened.caller, name)
    if json:
        console.as_json(one)
        return
    console.say(f"corpus {name}: {format.count(one['documents'], 'document')}")
    rows = [
        {
            "SETTING": key,
            "VALUE": _value(value),
            "DEFAULT": "" if value == default else _value(default),
            "WHAT IT DOES": sentence,
        }
        for key, value, default, sentence in corpora.explained(one["pipeline"])
    ]
    console.show(console.table(rows, wide="WHAT IT DOES"))


@app.command("set")
def change(name: Name, pairs: Pairs, json: options.Json = False) -> None:
    """Change settings of a corpus. They apply to its documents at their next ingest."""
    session.load_plugins()
    with session.open_app() as opened:
        changed = corpora.change(opened.caller, name, given := options.pairs(pairs))
        one = corpora.shown(opened.caller, name)
        _warn(given, opened.settings)
    if json:
        console.as_json({**one, "changed": changed})
    elif not changed:
        console.say(f"corpus {name}: the settings already have these values. Nothing was changed.")
    else:
        said = ", ".join(f"{key}={_value(one['pipeline'][key])}" for key in changed)
        console.say(f"corpus {name}: {said}.")
        if one["documents"]:
            console.say(
                "Its documents change at the next `quire ingest` of their source: "
                f"{corpora.consequence(changed)}."
            )


@app.command()
def synonyms(
    name: Name,
    file: File = None,
    list: Starter = None,
    remove: Remove = False,
    json: options.Json = False,
) -> None:
    """Show the synonyms of a corpus, or replace them by a file or a list of Quire's."""
    from quire.control import synonyms as verbs

    if sum(map(bool, (file, list, remove))) > 1:
        raise BadInput("synonyms: give one of FILE, --list and --remove. Nothing was changed.")
    with session.open_app() as opened:
        if remove:
            verbs.remove(opened.caller, name)
        elif file or list:
            given = None if file is None else _read(file)
            verbs.replace(opened.caller, name, verbs.content(given, list))
        found = verbs.shown(opened.caller, name)
    if json:
        console.as_json(found)
    elif file or list or remove:
        console.say(f"corpus {name}: {format.count(found['rows'], 'row')} of synonyms.")
    elif found["csv"]:
        console.say(format.clean(found["csv"].rstrip("\n")))
    else:
        console.say(f"corpus {name} has no synonyms.")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise BadInput(f"{file}: cannot be read ({reason}). Nothing was changed.") from error


@app.command()
def reindex(
    name: Name,
    dry_run: Annotated[bool, options.flag("Only say what it would cost.", "--dry-run")] = False,
    yes: options.Yes = False,
    wait: Annotated[
        bool, options.flag("Wait until it finishes. Exits with 1 unless it succeeded.", "--wait")
    ] = False,
    json: options.Json = False,
) -> None:
    """Index documents again that today's settings and parsers would index differently.

    First says what it costs, and asks. The current versions stay searchable until the new ones
    have been indexed; text that was recognised by OCR is reused.
    """
    from quire.cli.ingest import follow
    from quire.control import corpus_reindex

    session.load_plugins()
    with session.open_app() as opened:
        plan = corpus_reindex.plan(opened.caller, name, asdict(opened.settings))
        if not json:
            console.show(console.facts(_cost(plan)))
        if dry_run or not plan.documents:
            if json:
                console.as_json({"id": None, **plan._asdict()})
            elif not plan.documents:
                console.say("Nothing is outdated. No job was submitted.")
            return
        if not yes:
            _ask(name, plan.documents)
        job_id = corpus_reindex.start(opened.caller, name)
        if wait:
            raise typer.Exit(follow.to_the_end(opened, job_id, json=json))
    if json:
        console.as_json({"id": job_id, **plan._asdict()})
    else:
        console.say(f"job {job_id} indexes them. Follow it with: quire job show {job_id} --watch")


def _ask(name: str, number: int) -> None:
    documents = format.count(number, "document")
    if not sys.stdin.isatty():
        raise BadInput(
            f"corpus {name}: {documents} would be indexed again, and there is no terminal to ask "
            "for confirmation. Nothing was changed. Add --yes."
        )
    if not typer.confirm(f"{documents} will be indexed again. Continue?"):
        console.say("Nothing was changed.")
        raise typer.Exit(1)


def _cost(plan: "Plan") -> dict[str, str]:
    counts = {
        "documents": plan.documents, "unchanged": plan.unchanged, "busy": plan.busy,
        "not indexed": plan.not_indexed, "pages to read": plan.pages,
        "OCR reused": plan.ocr_pages, "pages kept": plan.kept_pages, "chunks": plan.chunks,
    }  # fmt: skip
    shown = {key: f"{value:,}" for key, value in counts.items() if value or key == "documents"}
    took = {"reading took": format.span(plan.seconds)} if plan.seconds else {}
    return {**shown, **took}


@app.command()
def delete(name: Name) -> None:
    """Delete a corpus. Its documents are kept."""
    with session.open_app() as opened:
        left = corpora.delete(opened.caller, name)
    stay = f" {format.count(left, 'document')} kept." if left else ""
    console.say(f"corpus {name} deleted.{stay}")


def _warn(given: dict[str, str], settings: "Settings") -> None:
    if lacking := corpora.lacking(given, settings.embed_url):
        console.note(lacking)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "(empty)" if value == "" else str(value)
