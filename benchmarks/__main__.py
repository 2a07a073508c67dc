"""`python -m benchmarks queue|ingest|api`: measures Quire on this machine."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Measure Quire on this machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)

Where = Annotated[
    str | None,
    typer.Option(metavar="WHICH", help="embedded, or the URL of a PostgreSQL; else both kinds."),
]
One = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH",
        help="embedded (default), postgres (one of its own), both, or a PostgreSQL's URL.",
    ),
]
Broker = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Measure through Celery too: redis://…, amqp://…, valkey."),
]
Peers = Annotated[
    str | None,
    typer.Option(metavar="PYTHON", help="An interpreter that has PgQueuer, to measure it too."),
]
Corpus = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Your own PDFs instead of made ones, for `pages`."),
]
Chunks = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Chunks that `search` looks through; else 100,000."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer jobs: a minute instead of several.")]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME,…", help="Only these measurements. May be repeated."),
]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write JSON to a file; `-` prints it instead."),
]


@app.callback()
def bench() -> None:
    """Measure Quire on this machine."""


@app.command()
def queue(
    database: Where = None,
    quick: Quick = False,
    only: Only = None,
    json: JsonFile = None,
    broker: Broker = None,
    peers: Peers = None,
) -> None:
    """Measure submit, claim, throughput and latency of the queue."""
    from benchmarks.queue import command as measured

    raise typer.Exit(
        measured.main(
            database=database, quick=quick, only=only, json=json, broker=broker, peers=peers
        )
    )


@app.command()
def ingest(
    database: One = None,
    quick: Quick = False,
    only: Only = None,
    json: JsonFile = None,
    corpus: Corpus = None,
    chunks: Chunks = None,
) -> None:
    """Measure the pipeline from files to searches, beside a bare loop of the same libraries."""
    from benchmarks.ingest import command as measured

    raise typer.Exit(
        measured.main(
            database=database, quick=quick, only=only, json=json, corpus=corpus, chunks=chunks
        )
    )


@app.command()
def api(
    database: One = None, quick: Quick = False, only: Only = None, json: JsonFile = None
) -> None:
    """Measure lists, pages, event streams and uploads of the API."""
    from benchmarks.api import command as measured

    raise typer.Exit(measured.main(database=database, quick=quick, only=only, json=json))


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
