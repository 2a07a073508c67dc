"""The verbs on corpora: create, show, change, delete. Settings are checked before storing them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from quire.clock import Instant
from quire.control.caller import Caller, verb
from quire.control.queries import missing_corpus
from quire.errors import BadInput, Conflict
from quire.model.pipeline import REPEATED, Pipeline, described, parsed
from quire.parse import plugin_parser
from quire.store import Connection
from quire.store.access import users
from quire.store.documents import corpora

LONGEST_NAME = 100
STAGES = {
    "read": "their pages are parsed, chunked and embedded again",
    "cut": "their text is chunked and embedded again; no page is parsed again",
    "embed": "their chunks are embedded again; no page is parsed again",
}


def create(caller: Caller, name: str, given: Mapping[str, Any]) -> None:
    """Create a corpus with settings that differ from the defaults."""
    if not (name.strip() == name and name.isprintable() and 0 < len(name) <= LONGEST_NAME):
        raise BadInput(
            f"corpus {name[:LONGEST_NAME]!r}: expected 1 to {LONGEST_NAME} printable characters "
            "without leading or trailing spaces."
        )
    plugin_parser.require(Pipeline().merged(given).parser)

    def act(conn: Connection, now: Instant) -> bool:
        return corpora.create(conn, caller.tenant, name, parsed(given), now=now)

    if not caller.db.write(act):
        raise Conflict(
            f"corpus {name}: already exists. Nothing was changed. Change its settings with "
            f"`quire corpus set {shlex.quote(name)} KEY=VALUE`."
        )


def listed(caller: Caller) -> list[dict[str, Any]]:
    """List the corpora with the number of their documents."""
    with caller.db.read() as conn:
        found = corpora.list_all(conn, caller.tenant)
    only = caller.corpus
    return [each for each in found if only is None or each["id"] == only.id]


def shown(caller: Caller, name: str) -> dict[str, Any]:
    """Return a corpus with every setting of its pipeline."""
    for each in listed(caller):
        if each["name"] == name:
            pipeline = asdict(Pipeline().merged(each["settings"]))
            return {**each, "pipeline": pipeline}
    raise missing_corpus(name)


def explained(pipeline: Mapping[str, Any]) -> list[tuple[str, Any, Any, str]]:
    """List name, value, default and sentence of every setting."""
    return [(name, pipeline[name], default, doc) for name, default, doc in described()]


def differing(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings of a corpus that are not the defaults."""
    defaults = {name: default for name, default, _ in described()}
    return {name: value for name, value in settings.items() if value != defaults.get(name)}


@verb
def change(
    caller: Caller, conn: Connection, now: Instant, name: str, given: Mapping[str, Any]
) -> list[str]:
    """Change settings of a corpus; returns the names of those whose value changed."""
    if not given:
        raise BadInput(
            f"corpus {name}: no setting was given. Name one as KEY=VALUE; `quire corpus show "
            f"{shlex.quote(name)}` lists them."
        )
    found = find(conn, caller.tenant, name)
    changed = _compared(found.settings, given)
    corpora.change(conn, found.id, {**found.settings, **parsed(given)})
    return [key for key, _, _ in changed]


def preview(caller: Caller, name: str, given: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """List the name, old and new value of each setting that would change."""
    return _compared(shown(caller, name)["settings"], given)


def _compared(settings: Mapping[str, Any], given: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    before = Pipeline().merged(settings)
    after = before.merged(given)
    if "parser" in given:
        plugin_parser.require(after.parser)
    pairs = [(key, getattr(before, key), getattr(after, key)) for key in parsed(given)]
    return [each for each in pairs if each[1] != each[2]]


def consequence(changed: Sequence[str]) -> str:
    """Say what the next ingest does to documents that are already indexed."""
    stages = {REPEATED[name] for name in changed if name in REPEATED}
    for stage, words in STAGES.items():
        if stage in stages:
            return words
    return "nothing is computed again"


def lacking(given: Mapping[str, Any], embed_url: str) -> str:
    """Return a warning about a missing embedding endpoint, or nothing.

    Only a warning: workers may run on another machine, where it is set.
    """
    embedder = str(given.get("embedder", ""))
    if embed_url or not embedder.startswith("openai:"):
        return ""
    return (
        f"embedder {embedder}: no endpoint is set here. Set QUIRE_EMBED_URL, and "
        "QUIRE_EMBED_API_KEY if it needs a key, where the workers and the API run. "
        "Without it every document fails."
    )


@verb
def delete(caller: Caller, conn: Connection, now: Instant, name: str) -> int:
    """Delete a corpus and keep its documents; returns how many it had. Its tokens are revoked."""
    found = find(conn, caller.tenant, name)
    users.revoke_of_corpus(conn, found.id, now=now)
    return corpora.delete(conn, found.id)


def find(conn: Connection, tenant: str, name: str) -> corpora.Corpus:
    """Return a corpus of the tenant, or raise NotFound."""
    found = corpora.find(conn, tenant, name)
    if found is None:
        raise missing_corpus(name)
    return found
