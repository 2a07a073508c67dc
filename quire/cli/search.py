"""`quire search`: finds passages in the documents."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli import console, options, words

if TYPE_CHECKING:
    from rich.text import Text

    from quire.app import App
    from quire.text.embed import Embedder

Query = Annotated[
    list[str],
    typer.Argument(metavar="QUERY...", help='Words to look for; "in quotes" they stand together.'),
]
Corpus = Annotated[str | None, typer.Option(metavar="NAME", help="Only in this corpus.")]
Documents = Annotated[
    list[int] | None,
    typer.Option("--document", metavar="ID", help="Only in this document; may be repeated."),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="Only in documents with this metadata; may be repeated."
    ),
]
MediaType = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Only in files of this type: application/pdf."),
]
Limit = Annotated[int, typer.Option(metavar="N", help="Most hits, up to 100.")]
Mode = Annotated[
    str,
    typer.Option(metavar="MODE", help="text: by words. vector: by meaning. fused: by both."),
]


def search(
    query: Query,
    corpus: Corpus = None,
    document: Documents = None,
    where: Where = None,
    type: MediaType = None,  # noqa: A002
    limit: Limit = 10,
    mode: Mode = "fused",
    json: options.Json = False,
) -> None:
    """Find passages in the documents, the best first."""
    from quire.cli import opening
    from quire.control import search as control

    with opening.reading() as opened:
        found = control.search(
            opened.db,
            opened.settings.tenant,
            " ".join(query),
            limit=limit,
            mode=mode,
            corpus=corpus,
            documents=document or (),
            where=options.pairs(where),
            media_type=type,
            embedder=lambda name: _embedder(opened, name),
        )
    if json:
        console.as_json(found)
        return
    if "note" in found:
        console.note(words.clean(found["note"]))
    if not found["items"]:
        _say_nothing_found(is_narrow=bool(corpus or document or where or type), mode=mode)
        return
    _print(found)


def _embedder(opened: "App", name: str) -> "Embedder":
    from dataclasses import asdict

    from quire.ingest.place import embedder_of
    from quire.model.pipeline import Pipeline

    return embedder_of(asdict(opened.settings), Pipeline(embedder=name))


def _say_nothing_found(*, is_narrow: bool, mode: str) -> None:
    advice = ["fewer or other words"]
    if is_narrow:
        advice.append("without --corpus, --document, --where and --type")
    if mode != "fused":
        advice.append("with --mode fused")
    console.say(
        f"Nothing found. Try {', or '.join(advice)}. `quire documents` lists what can be searched: "
        "what is still queued or failed is not."
    )


def _print(found: Mapping[str, Any]) -> None:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    drawn: list[Any] = []
    for rank, hit in enumerate(found["items"], start=1):
        head = Text(f"{rank:>2}  ")
        head.append(words.one_line(hit["name"], 80), style="bold")
        head.append(f"  {_place(hit)}  score {hit['score']:.3f}")
        below = Group(_passage(hit), Text(words.one_line(hit["uri"], 300), style="dim"))
        drawn += [head, Padding(below, (0, 0, 1, 4))]
    console.show(Group(*drawn))
    count = words.count(len(found["items"]), "hit")
    console.say(f"{count} by {found['mode']} search in {words.span(found['took_ms'] / 1000)}.")


def _place(hit: Mapping[str, Any]) -> str:
    return words.one_line(hit["label"], 60) if hit["label"] else f"page {hit['page']}"


def _passage(hit: Mapping[str, Any]) -> "Text":
    from rich.text import Text

    # Cleaning changes no position: what cannot be printed becomes one space.
    shown = Text("".join(c if c.isprintable() else " " for c in hit["text"]))
    for start, stop in hit["highlights"]:
        shown.stylize("bold yellow", start, stop)
    return shown
