"""`quire ingest` with a server: uploads files of this machine to it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quire import format
from quire.cli import console, waiting
from quire.cli.remote import RemoteBackend
from quire.errors import BadInput, Refused

if TYPE_CHECKING:
    from quire.fetch.items import SourceOptions
    from quire.settings import Settings

#: Files per request; each request becomes one job.
BATCH = 100


def run(
    settings: "Settings",
    sources: Sequence[str],
    options: "SourceOptions",
    *,
    corpus: str | None,
    wait: bool,
    json: bool,
) -> int:
    """Upload all matching files and return the exit code."""
    found = [path for source in sources for path in _files(source, options)]
    if not found:
        raise BadInput("ingest: no file matches. Nothing was uploaded.")
    with RemoteBackend(settings.url, settings.token) as server:
        ids = [
            int(server.upload(*found[start : start + BATCH], corpus=corpus)["id"])
            for start in range(0, len(found), BATCH)
        ]
        if not json:
            named = ", ".join(map(str, ids))
            console.say(f"{format.count(len(found), 'file')} uploaded; job {named} ingests them.")
        ended = waiting.until_over(server, ids, quiet=json) if wait else {}
    if json:
        answer = {"id": ids[0], "ids": ids, "sent": len(found)}
        console.as_json({**answer, "states": ended} if wait else answer)
    elif wait:
        console.say(f"{waiting.outcome(ended)}.")
    return waiting.exit_code(ended)


def _files(source: str, options: "SourceOptions") -> Iterator[Path]:
    from quire.fetch.names import file_path
    from quire.fetch.sources.folder import FolderSource

    if source.startswith("file://"):
        source = str(file_path(source))
    elif "://" in source or source.startswith("gdrive:"):
        raise Refused(
            f"source {source[:100]}: only local files can be uploaded to a server. Nothing was "
            "uploaded. Run it on the server's machine, or unset QUIRE_URL."
        )
    for page in FolderSource(source, options).pages():
        for skipped in page.skipped:
            console.note(f"{format.one_line(skipped.uri, 300)}: {format.one_line(skipped.reason)}")
        yield from (file_path(item.uri) for item in page.items)
