"""Sealed secrets: what stands in stored URLs in place of passwords and signatures.

A mark is found by its tag, which is a keyed hash of tenant and secret: the same secret has the same
mark, and nobody who reads it can test guesses. The key of the tags is sealed like a secret, so
that a process with another key is noticed before it seals anything.
"""

import base64
import hashlib
import hmac
import os
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

import sqlalchemy as sa

from quire import url_secrets
from quire.errors import SecretUnavailable
from quire.secret_key import Ring
from quire.store.db import bulk
from quire.store.db.engine import Database, TransactionConflict
from quire.store.db.schema.access import secrets
from quire.store.db.schema.queue import jobs, owners

s = secrets.c
DAY = 86_400.0
#: Days after its last use at which a secret is deleted.
KEEP_DAYS = 90.0
#: The row that holds the key of the tags.
_ALL, _TAGS = "", "tags"
_BATCH = 500
_COLUMNS = ("tenant", "tag", "key_id", "sealed", "used_at")


class Sealer:
    """Replaces the secrets of one tenant by marks, and remembers them to be stored."""

    def __init__(self, ring: Ring, tag_key: bytes, tenant: str) -> None:
        self._ring, self._tag_key, self._tenant = ring, tag_key, tenant
        self._found: dict[str, str] = {}

    def seal(self, url: str) -> str:
        """Return a URL with marks."""
        return url_secrets.marked(url, self._tag) if "://" in url else url

    def identity(self, url: str) -> str:
        """Return what the URL stays when its password or signature changes."""
        return url_secrets.identity(self.seal(url)) if "://" in url else url

    def store(self, conn: sa.Connection, *, used_at: float) -> None:
        """Store the secrets that were found, sealed; those that are known are used anew."""
        known = touch(conn, self._tenant, self._found, used_at=used_at)
        rows = [
            (
                self._tenant,
                tag,
                *self._ring.seal(_bytes(secret), _about(self._tenant, tag)),
                used_at,
            )
            for tag, secret in sorted(self._found.items())
            if tag not in known
        ]
        bulk.insert_missing_blobs(conn, secrets, _COLUMNS, rows)

    @property
    def has_found(self) -> bool:
        """Whether there is anything to store."""
        return bool(self._found)

    def _tag(self, secret: str) -> str:
        tag = _tag(self._tag_key, self._tenant, secret)
        self._found[tag] = secret
        return tag


def sealer(db: Database, ring: Ring, tenant: str) -> Sealer:
    """Return what seals for a tenant; the first call makes the key of the tags."""
    with db.read() as conn:
        found = _tag_key(conn, ring)
    return Sealer(ring, found or db.write(lambda conn, now: _make_tag_key(conn, ring)), tenant)


def _make_tag_key(conn: sa.Connection, ring: Ring) -> bytes:
    """Store a new key of the tags, unless another process was faster; return the one stored."""
    sealed = ring.seal(os.urandom(32), _about(_ALL, _TAGS))
    # Never pruned: it is used by every other row.
    bulk.insert_missing_blobs(conn, secrets, _COLUMNS, [(_ALL, _TAGS, *sealed, 1e12)])
    if (found := _tag_key(conn, ring)) is None:
        raise TransactionConflict("database: the key of the marks is being replaced")
    return found


def opened(conn: sa.Connection, ring: Ring, tenant: str, value: Any) -> Any:
    """Return a JSON value with the secrets of a tenant in place of their marks."""
    tags = tags_in(value)
    found = {
        row.tag: ring.open(row.key_id, row.sealed, _about(tenant, row.tag)).decode(
            errors="surrogatepass"
        )
        for some in _batches(tags)
        for row in conn.execute(
            sa.select(s.tag, s.key_id, s.sealed).where(s.tenant == tenant, s.tag.in_(some))
        )
    }
    if missing := [tag for tag in tags if tag not in found]:
        raise SecretUnavailable(
            f"secrets: {len(missing)} password or signature of the source is no longer stored "
            f"(kept for {KEEP_DAYS:g} days after its last use). Submit the source again with it."
        )
    return url_secrets.each_text(
        value, lambda text: url_secrets.MARK.sub(lambda mark: found[mark[1]], text)
    )


def tags_in(value: Any) -> set[str]:
    """Return the tags of the marks in a JSON value."""
    tags: set[str] = set()

    def look(text: str) -> str:
        tags.update(url_secrets.MARK.findall(text))
        return text

    url_secrets.each_text(value, look)
    return tags


def tenant_of_job(conn: sa.Connection, job_id: int) -> str:
    """Return the tenant of a job."""
    query = sa.select(owners.c.tenant).join(jobs, jobs.c.owner_id == owners.c.id)
    return str(conn.execute(query.where(jobs.c.id == job_id)).scalar_one())


def are_fresh(conn: sa.Connection, tenant: str, tags: Collection[str], *, since: float) -> bool:
    """Tell whether all of these secrets were used since a time."""
    return len(_used_since(conn, tenant, tags, since)) == len(tags)


def touch(conn: sa.Connection, tenant: str, tags: Collection[str], *, used_at: float) -> set[str]:
    """Record the use of secrets, at most daily, so that they are kept; returns the known ones."""
    fresh = _used_since(conn, tenant, tags, used_at - DAY)
    for some in _batches(set(tags) - fresh):
        stale = sa.update(secrets).where(s.tenant == tenant, s.tag.in_(some))
        fresh |= set(conn.scalars(stale.values(used_at=used_at).returning(s.tag)))
    return fresh


def _used_since(conn: sa.Connection, tenant: str, tags: Collection[str], since: float) -> set[str]:
    return {
        tag
        for some in _batches(tags)
        for tag in conn.scalars(
            sa.select(s.tag).where(s.tenant == tenant, s.tag.in_(some), s.used_at >= since)
        )
    }


def _batches(tags: Iterable[str]) -> Iterator[list[str]]:
    """Yield sorted tags in lists that fit into a statement."""
    left = iter(sorted(tags))
    while some := list(islice(left, _BATCH)):
        yield some


def prune(conn: sa.Connection, *, before: float, limit: int = 5000) -> int:
    """Delete secrets that were last used before a time; returns how many."""
    old = sa.select(s.tenant, s.tag).where(s.used_at < before).order_by(s.used_at).limit(limit)
    keys = [tuple(row) for row in conn.execute(old)]
    if keys:
        conn.execute(sa.delete(secrets).where(sa.tuple_(s.tenant, s.tag).in_(keys)))
    return len(keys)


def reseal(conn: sa.Connection, ring: Ring, *, limit: int = 500) -> int:
    """Seal with the first key what others sealed; returns how many."""
    query = sa.select(secrets).where(s.key_id != ring.first.id)
    rows = conn.execute(query.order_by(s.tenant, s.tag).limit(limit)).all()
    for row in rows:
        about = _about(row.tenant, row.tag)
        key_id, sealed = ring.seal(ring.open(row.key_id, row.sealed, about), about)
        conn.execute(
            sa.update(secrets)
            .where(s.tenant == row.tenant, s.tag == row.tag, s.key_id == row.key_id)
            .values(key_id=key_id, sealed=sealed)
        )
    return len(rows)


def require_openable(conn: sa.Connection, ring: Ring) -> None:
    """Raise SecretUnavailable if the ring lacks a key that something is sealed with."""
    query = sa.select(s.tenant, s.tag, s.key_id, s.sealed)
    unknown = s.key_id.not_in([key.id for key in ring.keys])
    for row in conn.execute(query.where(unknown).limit(1)):
        ring.open(row.key_id, row.sealed, _about(row.tenant, row.tag))


def forget_others(conn: sa.Connection, ring: Ring) -> int:
    """Delete what no key of the ring opens; returns how many."""
    known = [key.id for key in ring.keys]
    return conn.execute(sa.delete(secrets).where(s.key_id.not_in(known))).rowcount


def counts(conn: sa.Connection) -> dict[str, int]:
    """Count the sealed secrets by the id of their key."""
    query = sa.select(s.key_id, sa.func.count()).where(s.tenant != _ALL)
    query = query.group_by(s.key_id).order_by(s.key_id)
    return dict(list(conn.execute(query)))


def _tag_key(conn: sa.Connection, ring: Ring) -> bytes | None:
    query = sa.select(s.key_id, s.sealed).where(s.tenant == _ALL, s.tag == _TAGS)
    row = conn.execute(query).one_or_none()
    return None if row is None else ring.open(row.key_id, row.sealed, _about(_ALL, _TAGS))


def _tag(key: bytes, tenant: str, secret: str) -> str:
    made = hmac.new(key, _bytes(f"{tenant}\0{secret}"), hashlib.sha256)
    length = url_secrets.TAG_LENGTH * 5 // 8
    return base64.b32hexencode(made.digest()[:length]).decode().lower()


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _about(tenant: str, tag: str) -> str:
    """Return what a sealed secret is bound to: its row."""
    return f"quire secret\0{tenant}\0{tag}"
