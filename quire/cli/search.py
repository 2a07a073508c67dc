"""`quire search`: finds passages in documents."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from quire import format
from quire.cli import console, options, session

Query = Annotated[
    list[str], options.argument("QUERY", 'Words to search for. A "quoted phrase" matches exactly.')
]
Corpus = Annotated[str | None, options.option("NAME", "Only in this corpus.")]
Documents = Annotated[
    list[int] | None,
    options.option("ID", "Only in this document. Repeatable.", parser=options.document_id),
]
Where = Annotated[
    list[str] | None,
    options.option("KEY=VALUE", "Only in documents with this metadata. Repeatable."),
]
MediaType = Annotated[
    str | None, options.option("TYPE", "Only in files of this media type, as in application/pdf.")
]
Limit = Annotated[int, options.option("N", "Number of hits, at most 100.")]
Explain = Annotated[
    bool, options.flag("Show what each field and each word gave to the score of a hit.")
]
Mode = Annotated[
    str, options.option("MODE", "text (by words), vector (by meaning) or hybrid (both).")
]

#: What the fields of a hit's explanation are called.
FIELDS = {"text": "text", "heads": "first lines", "name": "name", "all_pages": "document"}


def search(
    query: Query,
    corpus: Corpus = None,
    document: Documents = None,
    where: Where = None,
    type: MediaType = None,
    limit: Limit = 10,
    mode: Mode = "hybrid",
    explain: Explain = False,
    json: options.Json = False,
) -> None:
    """Search the documents; the best pages come first.

    `name:WORD`, `year:2018` and `type:pdf` in the query restrict it to such documents.
    """
    with session.connect() as opened:
        found = opened.search(
            " ".join(query),
            limit=limit,
            mode=mode,
            corpus=corpus,
            document=document,
            where=options.pairs(where),
            media_type=type,
            **({"explain": True} if explain else {}),
        )
    if json:
        console.as_json(found)
        return
    show(found, " ".join(query))
    if not found["items"]:
        advice = ["other or fewer words"]
        if corpus or document or where or type:
            advice.append("without --corpus, --document, --where and --type")
        if mode != "hybrid":
            advice.append("with --mode hybrid")
        console.say(
            f"Try {', or '.join(advice)}. `quire documents` lists the documents: queued and failed "
            "ones are not searched."
        )


def show(found: Mapping[str, Any], query: str) -> None:
    """Print the hits of a search."""
    if "note" in found:
        console.note(format.clean(found["note"]))
    if not found["items"]:
        console.say(f"Nothing found for {format.one_line(query, 60)}.")
        return
    _draw(found["items"])
    count = format.count(len(found["items"]), "hit")
    console.say(f"{count} in {format.span(found['took_ms'] / 1000)}.")


def explained(why: Mapping[str, Any]) -> str:
    """Say in one line what gave a hit its score."""
    shares = [
        f"{name} {why[key]:.2f}"
        for key, name in (("page", "page"), ("document", "document"), ("vector", "meaning"))
        if why[key]
    ]
    words = f"; words: {', '.join(map(_word, why['words']))}" if why["words"] else ""
    name = "; the name matches" if why["name"] else ""
    given = " + ".join(shares) or "no score"
    if "rerank" in why:
        given = (
            f"reranked {why['rerank']['score']:.2f}, before at {why['rerank']['before']}; {given}"
        )
    return f"{given}{words}{name}"


def _word(each: Mapping[str, Any]) -> str:
    """Say where a word of the query was found, and what it is a synonym of."""
    where = ", ".join(name for key, name in FIELDS.items() if key in each)
    of = f" for {each['synonym_of']}" if "synonym_of" in each else ""
    return f"{each['word']}{of} ({where})"


def _draw(items: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    drawn: list[Any] = []
    for rank, hit in enumerate(items, start=1):
        head = Text(f"{rank:>2}  ")
        head.append(format.one_line(hit["name"], 80), style="bold")
        place = format.one_line(hit["label"], 60) if hit["label"] else f"page {hit['page']}"
        head.append(f"  {place}  score {hit['score']:.3f}")
        # Cleaning changes no position: what cannot be printed becomes one space.
        passage = Text("".join(c if c.isprintable() else " " for c in hit["text"]))
        for start, stop in hit["highlights"]:
            passage.stylize("bold yellow", start, stop)
        lines = [Text(format.one_line(hit["uri"], 300), style="dim")]
        if "why" in hit:
            lines.append(Text(format.clean(explained(hit["why"])), style="dim"))
        below = Group(passage, *lines)
        drawn += [head, Padding(below, (0, 0, 1, 4), expand=False)]
    console.show(Group(*drawn))
