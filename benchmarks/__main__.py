"""`python -m benchmarks queue|ingest|api`: measures Quire on this machine. See docs/bench.md."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Measure Quire on this machine. docs/bench.md describes each measurement.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)

QueueDatabase = Annotated[
    str | None,
    typer.Option(metavar="WHICH", help="embedded, or a PostgreSQL URL. Default: both."),
]
OneDatabase = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH",
        help="embedded (default), postgres (starts a server), both, or a PostgreSQL URL.",
    ),
]
Broker = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Broker for measurements through Celery: redis://…, amqp://…, or valkey (starts one). "
        "It is purged.",
    ),
]
PeerPython = Annotated[
    str | None,
    typer.Option(
        "--peers", metavar="PYTHON", help="Python interpreter with other queues, for `peers`."
    ),
]
Rows = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME,…", help="Run only these rows of `peers`. Can be repeated."),
]
Corpus = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Your own PDFs instead of generated ones, for `pages`."),
]
Chunks = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Number of chunks for `search`. Default: 100,000."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Smaller sizes: a minute, not several.")]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME,…", help="Run only these measurements. Can be repeated."),
]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write JSON to a file too; `-` prints only JSON."),
]


@app.command()
def queue(
    database: QueueDatabase = None,
    quick: Quick = False,
    only: Only = None,
    json: JsonFile = None,
    broker: Broker = None,
    peer_python: PeerPython = None,
    rows: Rows = None,
) -> None:
    """Measure submission, claims, throughput, latency, recovery and fairness of the queue."""
    from benchmarks.queue import command

    raise typer.Exit(
        command.main(
            database=database,
            quick=quick,
            only=only,
            json=json,
            broker=broker,
            peer_python=peer_python,
            rows=rows,
        )
    )


@app.command()
def ingest(
    database: OneDatabase = None,
    quick: Quick = False,
    only: Only = None,
    json: JsonFile = None,
    corpus: Corpus = None,
    chunks: Chunks = None,
) -> None:
    """Measure ingestion and search, compared with a bare loop over the same libraries."""
    from benchmarks.ingest import command

    raise typer.Exit(
        command.main(
            database=database, quick=quick, only=only, json=json, corpus=corpus, chunks=chunks
        )
    )


@app.command()
def api(
    database: OneDatabase = None, quick: Quick = False, only: Only = None, json: JsonFile = None
) -> None:
    """Measure lists, dashboard pages, event streams and uploads of the API."""
    from benchmarks.api import command

    raise typer.Exit(command.main(database=database, quick=quick, only=only, json=json))


if __name__ == "__main__":
    # SIGTERM ends what a measurement has started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    app(prog_name="python -m benchmarks")
