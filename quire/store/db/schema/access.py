"""The tables of access: users, tokens, sessions, sign-in links, the audit log, quotas, secrets.

Only the SHA-256 of a token, cookie or link is stored, and secrets of sources are sealed, so a copy
of the database gives no access.
"""

import sqlalchemy as sa

from quire.model.access import SCOPE_SETS, Role
from quire.store.db.schema.queue import Id, Time, metadata, one_of

#: SQLite cannot change the constraint of a table that others refer to, so an instance admin is an
#: admin with a mark.
TENANT_ROLES = (Role.VIEWER, Role.MEMBER, Role.ADMIN)

users = sa.Table(
    "users",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("signed_in_at", Time),
    sa.Column("disabled_at", Time),
    # With the role admin: an instance admin. Null: no.
    sa.Column("operates", sa.Boolean),
    # Who it is for the OpenID provider; null until the first sign-in with it.
    sa.Column("issuer", sa.Text),
    sa.Column("subject", sa.Text),
    sa.UniqueConstraint("tenant", "name", name="uq_users"),
    one_of("role", TENANT_ROLES, "ck_users_role"),
)
USERS_BY_IDENTITY = sa.Index("uq_users_identity", users.c.issuer, users.c.subject, unique=True)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("user_id", Id, sa.ForeignKey(users.c.id), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("scopes", sa.Text, nullable=False),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("expires_at", Time),
    sa.Column("revoked_at", Time),
    sa.Column("last_used_at", Time),
    # The only corpus that it may use; null: all. Deleting the corpus revokes the token.
    sa.Column("corpus_id", Id),
    # From which it was last used.
    sa.Column("address", sa.Text),
    sa.UniqueConstraint("sha256", name="uq_tokens_sha256"),
    one_of("scopes", SCOPE_SETS, "ck_tokens_scopes"),
)
sa.Index("ix_tokens_tenant", tokens.c.tenant, tokens.c.id)
sa.Index("ix_tokens_user", tokens.c.user_id)

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("user_id", Id, sa.ForeignKey(users.c.id), nullable=False),
    sa.Column("csrf", sa.Text, nullable=False),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("expires_at", Time, nullable=False),
    sa.Column("last_seen_at", Time, nullable=False),
    # From which it was last seen.
    sa.Column("address", sa.Text),
    sa.UniqueConstraint("sha256", name="uq_sessions_sha256"),
)
sa.Index("ix_sessions_user", sessions.c.user_id)
sa.Index("ix_sessions_expires", sessions.c.expires_at)

links = sa.Table(
    "links",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("user_id", Id, sa.ForeignKey(users.c.id), nullable=False),
    sa.Column("created_at", Time, nullable=False),
    sa.Column("expires_at", Time, nullable=False),
    sa.Column("used_at", Time),
    sa.UniqueConstraint("sha256", name="uq_links_sha256"),
)
sa.Index("ix_links_user", links.c.user_id)
sa.Index("ix_links_expires", links.c.expires_at)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("at", Time, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    # Names, not ids: unknown and deleted users are recorded too.
    sa.Column("user_name", sa.Text),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("subject", sa.Text),
    sa.Column("detail", sa.Text),
    sa.Column("address", sa.Text),
)
sa.Index("ix_audit_tenant", audit.c.tenant, audit.c.id)
sa.Index("ix_audit_at", audit.c.at)

#: Limits of tenants that have any. NULL: no limit.
tenants = sa.Table(
    "tenants",
    metadata,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("max_bytes", sa.BigInteger),
    sa.Column("max_documents", sa.BigInteger),
    sa.Column("max_pages", sa.BigInteger),
    sa.Column("max_jobs", sa.BigInteger),
    sa.Column("max_requests", sa.BigInteger),
    # Requests of one day, in days since 1970 (UTC).
    sa.Column("day", sa.Integer, nullable=False, server_default="0"),
    sa.Column("requests", sa.BigInteger, nullable=False, server_default="0"),
)

source_grants = sa.Table(
    "source_grants",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    # Normalised, as `model.places` writes it: /srv/share, s3://bucket/prefix, host:wiki.internal.
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("created_by", sa.Text, nullable=False),
    sa.Column("created_at", Time, nullable=False),
    sa.UniqueConstraint("tenant", "place", name="uq_source_grants"),
)

#: Passwords and signatures of source URLs, which hold a mark in their place.
secrets = sa.Table(
    "secrets",
    metadata,
    # An empty tenant: the key of the marks themselves.
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("tag", sa.Text, primary_key=True),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("used_at", Time, nullable=False),
)
sa.Index("ix_secrets_used", secrets.c.used_at)

TABLES = (users, tokens, sessions, links, audit, tenants, source_grants, secrets)
