"""Sealing of the secrets in submitted URLs, and the verbs on the key that seals them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from quire import secret_key, url_secrets
from quire.clock import Instant
from quire.control import submission_checks
from quire.control.access import note
from quire.control.caller import Caller
from quire.errors import BadInput
from quire.model.records import Submission
from quire.store import Connection
from quire.store.access import secrets
from quire.store.access.secrets import Sealer


def sealed(
    caller: Caller, submissions: Sequence[Submission], encoded: Sequence[str]
) -> tuple[list[str], Sealer | None]:
    """Return encoded payloads with marks in place of secrets, and what stores these, if any."""
    with_urls = [at for at, text in enumerate(encoded) if "://" in text]
    if not any(_has_secret(submissions[at].payload) for at in with_urls):
        return list(encoded), None
    sealer = secrets.sealer(caller.db, secret_key.load(caller.settings), caller.tenant)
    texts = list(encoded)
    for at in with_urls:
        payload = url_secrets.each_text(submissions[at].payload, sealer.seal)
        texts[at] = submission_checks.encoded(payload)
    return texts, sealer


def store(
    conn: Connection, sealer: Sealer | None, submissions: Sequence[Submission], now: Instant
) -> None:
    """Store the secrets of submissions; they are kept until after the job has started."""
    if sealer is not None:
        sealer.store(conn, used_at=max([now.wall, *(each.run_at or 0.0 for each in submissions)]))


def identity_of(caller: Caller | None) -> Callable[[str], str]:
    """Return how a URL is stored as that of a document or of its source."""
    kept: list[Sealer] = []

    def identity(url: str) -> str:
        if caller is None or "://" not in url or not url_secrets.secrets_of(url):
            return url
        if not kept:
            ring = secret_key.load(caller.settings)
            kept.append(secrets.sealer(caller.db, ring, caller.tenant))
        return kept[0].identity(url)

    return identity


def _has_secret(payload: Any) -> bool:
    """Tell whether a payload has a secret to be sealed; refuse one that is hidden.

    Such a URL was copied from where it is shown. It must not fetch with the secret of another user.
    """
    found: list[str] = []

    def look(text: str) -> str:
        some = url_secrets.secrets_of(text) if "://" in text else []
        if any(each.startswith(url_secrets.MASK) for each in some):
            raise BadInput(
                f"{url_secrets.masked(text)[:200]}: its password or signature is hidden, not "
                "given. Nothing was submitted; write it in place of ***."
            )
        found.extend(some)
        return text

    url_secrets.each_text(payload, look)
    return bool(found)


def shown(caller: Caller) -> dict[str, Any]:
    """Return the ids of the keys, where they come from, and how many secrets each one seals."""
    with caller.db.read() as conn:
        counts = secrets.counts(conn)
    ring = secret_key.find(caller.settings)
    keys = [key.id for key in ring.keys] if ring else []
    return {"keys": keys, "from": ring.origin if ring else "nowhere", "sealed": counts}


def rotate(caller: Caller, *, forget: bool = False) -> dict[str, Any]:
    """Seal every secret anew, with a new key of the home or the first of QUIRE_SECRET_KEY.

    `forget` deletes those that no key opens.
    """
    db = caller.db
    ring = secret_key.load(caller.settings)
    forgotten = 0
    if forget:
        forgotten = db.write(lambda conn, now: secrets.forget_others(conn, ring))
    else:
        with db.read() as conn:
            secrets.require_openable(conn, ring)
    if not caller.settings.get("secret_key"):
        ring = secret_key.add_to_file(Path(caller.settings["home"]))
    resealed = 0
    while count := db.write(lambda conn, now: secrets.reseal(conn, ring)):
        resealed += count

    def record(conn: Connection, now: Instant) -> None:
        detail = {"sealed": resealed, "forgotten": forgotten}
        note(conn, caller, "secret.rotate", ring.first.id, detail, now)

    db.write(record)
    return {"key": ring.first.id, "from": ring.origin, "sealed": resealed, "forgotten": forgotten}
