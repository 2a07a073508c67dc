"""The verbs on the synonyms of a corpus: show, replace, remove. Searches use them at once."""

from typing import Any

from quire.clock import Instant
from quire.control import corpora as verbs
from quire.control.caller import Caller, verb
from quire.control.queries import corpus_for
from quire.errors import BadInput
from quire.store import Connection
from quire.store.documents import corpora
from quire.text import synonyms

#: Characters of all lists of a tenant: a search without a corpus asks each of them.
MAX_TENANT_CHARS = 4 * synonyms.MAX_CHARS


def shown(caller: Caller, name: str) -> dict[str, Any]:
    """Return the synonyms of a corpus as they were given."""
    name = corpus_for(caller, name) or name
    with caller.db.read() as conn:
        found = verbs.find(conn, caller.tenant, name)
        lists = corpora.synonyms(conn, caller.tenant, found.id)
    return _described(name, lists[0] if lists else "")


def _described(name: str, csv: str) -> dict[str, Any]:
    return {"corpus": name, "rows": len(synonyms.parse(csv)) if csv else 0, "csv": csv}


@verb
def replace(caller: Caller, conn: Connection, now: Instant, name: str, csv: str) -> dict[str, Any]:
    """Replace the synonyms of a corpus."""
    csv = csv.removeprefix("\ufeff").encode(errors="replace").decode().replace("\0", " ")
    synonyms.parse(csv)
    found = verbs.find(conn, caller.tenant, name)
    corpora.set_synonyms(conn, found.id, csv)
    if sum(map(len, corpora.synonyms(conn, caller.tenant))) > MAX_TENANT_CHARS:
        raise BadInput(
            f"synonyms: all corpora of the tenant would have more than {MAX_TENANT_CHARS:,} "
            "characters. Nothing was changed. Remove the synonyms of another corpus first."
        )
    return _described(name, csv)


@verb
def remove(caller: Caller, conn: Connection, now: Instant, name: str) -> None:
    """Remove the synonyms of a corpus."""
    corpora.set_synonyms(conn, verbs.find(conn, caller.tenant, name).id, None)


def content(csv: str | None, starter: str | None) -> str:
    """Return the list that a user names: their own, or one that is part of Quire."""
    if (csv is None) == (starter is None):
        raise BadInput("synonyms: expected either a list or the name of one. Nothing was changed.")
    return csv if csv is not None else synonyms.starter(starter or "")
