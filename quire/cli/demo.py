"""`quire demo`: creates sample documents, ingests them and searches them.

Two of the samples are unreadable on purpose, to show what a failure looks like. A second run finds
everything unchanged.
"""

import os
from pathlib import Path

import typer

from quire import home as homes
from quire.app import App
from quire.cli import console, session
from quire.cli.database import lines
from quire.cli.ingest import follow
from quire.cli.search import show
from quire.control import doctor, ingest, queries, search
from quire.demo import samples

CORPUS = "samples"
#: Samples that fail on purpose.
UNREADABLE = {"protected.pdf", "broken.pdf"}
QUERIES = ("depth over the sill", "how to contest a customs charge")
NEXT = f"""
Next:
  make up                                             # workers and dashboard
  .venv/bin/quire ingest FOLDER                       # your own documents
  .venv/bin/quire documents
  .venv/bin/quire search "{QUERIES[0]}\""""


def demo() -> None:
    """Create sample documents, ingest them and search them.

    A second run finds everything unchanged.
    """
    named = os.environ.get("QUIRE_HOME")
    home = homes.choose(named).path if named else homes.found(Path(".quire")).path
    is_fresh = not home.exists()
    with session.create_app(home=home) as app:
        console.say(f"home      {home}{' (created)' if is_fresh else ''}")
        folder = app.settings.home / "samples"
        made = samples.make(folder)
        console.say(f"samples   {len(made)} files + 1 attachment in {folder}")
        console.say(f"          {', '.join(path.name for path in made)}")
        is_right = _ingest(app, folder)
        for query in QUERIES:
            console.say(f"\nsearch    {query}")
            found = search.search(app.db, app.settings.tenant, query, limit=3, corpus=CORPUS)
            show(found, query)
            is_right &= bool(found["items"])
        report = doctor.examine(app.db, sweep_interval=app.settings.sweep_interval)
        console.say()
        for line in lines(report):
            console.say(f"doctor    {line}")
        is_right &= report.is_healthy
        if not is_right:
            console.say("result    not as expected; see above")
        console.say(NEXT)
    raise typer.Exit(0 if is_right else 1)


def _ingest(app: App, folder: Path) -> bool:
    """Ingest the folder; tell whether exactly the expected files failed."""
    request = ingest.check_request([str(folder)], app.settings.for_children, corpus=CORPUS)
    [job_id] = app.submit_many([request.submission()])
    console.say(f"ingest    job {job_id}: fetch, extract text, chunk, embed, index")
    console.say()
    follow.to_the_end(app, job_id)
    # Of any run: a second one does not try them again.
    failed = queries.documents(app.caller, corpus=CORPUS, states=["failed"])["items"]
    console.say()
    names = {each["name"] for each in failed}
    if names == UNREADABLE:
        console.say("expected  these two files are unreadable on purpose")
    else:
        console.say(f"expected  {_named(UNREADABLE)} to fail, but got {_named(names)}")
    result = queries.job(app.caller, job_id)["result"] or {}
    if result.get("unchanged") and not result.get("new"):
        console.say("reused    all other files are unchanged: nothing was read again")
    return names == UNREADABLE


def _named(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
